/* Parts of libjpeg that TurboJPEG's functions do not offer: its decoder without the decoding of Huffman
 * codes, which a callback does. Everything else (transform, colours, crop) happens in the same order as
 * in tj3Decompress8, so that pixels are the same.
 *
 * An error or a warning of the library ends a function by a long jump, which crosses only frames of the
 * library, because the callbacks do not call the library. The caller then decodes the file in the usual
 * way.
 */

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <jpeglib.h>

/* The beginning of this struct in every version of libjpeg; the rest is private. */
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr);
  boolean (*decode_mcu)(j_decompress_ptr, JBLOCKROW *);
};

#if JPEG_LIB_VERSION >= 70
#define SCALED_SIZE(component) ((component)->DCT_h_scaled_size)
#define LEAST_SIZE(info) ((info)->min_DCT_h_scaled_size)
#else
#define SCALED_SIZE(component) ((component)->DCT_scaled_size)
#define LEAST_SIZE(info) ((info)->min_DCT_scaled_size)
#endif

/* The structs below are the same as in jpeg_parts.rs. */

struct penstock_facts {
  unsigned width, height, components, across, down;
};

struct penstock_component {
  const unsigned char *first_counts, *first_symbols, *other_counts, *other_symbols;
  int is_wanted, scaled_size;
};

struct penstock_scan {
  struct penstock_component components[MAX_COMPS_IN_SCAN];
  int block_components[D_MAX_BLOCKS_IN_MCU];
  unsigned num_components, num_blocks, interval, columns, rows, first_column, last_column;
  const unsigned char *bytes;
  size_t num_bytes;
};

/* Returns whether the scan can be decoded. */
typedef int (*penstock_begin)(void *, const struct penstock_scan *);
/* Decodes one unit. Returns less than 0 if it cannot, and after the last unit the number of bytes used. */
typedef ptrdiff_t (*penstock_unit)(void *, JBLOCKROW *);

struct penstock_wanted {
  unsigned part, left, top, width, height, is_region, channels, is_quick;
  unsigned char *pixels;
  size_t row_bytes;
  void *decoder;
  penstock_begin begin;
  penstock_unit unit;
};

struct penstock_jpeg {
  struct jpeg_decompress_struct info;
  struct jpeg_error_mgr errors;
  jmp_buf leave;
  const struct penstock_wanted *wanted;
  const unsigned char *scan;
  size_t num_bytes;
};

static void leave(j_common_ptr info) {
  longjmp(((struct penstock_jpeg *)info)->leave, 1);
}

static void leave_on_warning(j_common_ptr info, int level) {
  if (level < 0) leave(info);
}

static void say_nothing(j_common_ptr info) {
  (void)info;
}

struct penstock_jpeg *penstock_jpeg_new(void) {
  return calloc(1, sizeof(struct penstock_jpeg));
}

void penstock_parts_free(struct penstock_jpeg *jpeg) {
  jpeg_destroy_decompress(&jpeg->info);
  free(jpeg);
}

/* Read the header. Returns whether the file has one scan of Huffman codes and is not progressive. The bytes
 * must stay valid until the next call. */
int penstock_jpeg_begin(struct penstock_jpeg *jpeg, const unsigned char *bytes, size_t num_bytes,
                        struct penstock_facts *facts) {
  struct jpeg_decompress_struct *info = &jpeg->info;
  int i;

  /* A new decoder, because the library would keep the tables of one file for files without tables. */
  jpeg_destroy_decompress(info);
  info->err = jpeg_std_error(&jpeg->errors);
  jpeg->errors.error_exit = leave;
  jpeg->errors.emit_message = leave_on_warning;
  jpeg->errors.output_message = say_nothing;
  if (setjmp(jpeg->leave)) {
    jpeg_destroy_decompress(info);
    return 0;
  }
  jpeg_create_decompress(info);
  jpeg_mem_src(info, bytes, (unsigned long)num_bytes);
  jpeg_read_header(info, TRUE);
  if (info->progressive_mode || info->arith_code || info->data_precision != 8 ||
      info->comps_in_scan != info->num_components || info->Ss != 0 || info->Se != DCTSIZE2 - 1 ||
      info->Ah != 0 || info->Al != 0)
    return 0;
  facts->width = info->image_width;
  facts->height = info->image_height;
  facts->components = info->num_components;
  facts->across = info->comp_info[0].h_samp_factor;
  facts->down = info->comp_info[0].v_samp_factor;
  for (i = 1; i < info->num_components; i++) {
    if (info->comp_info[i].h_samp_factor != 1 || info->comp_info[i].v_samp_factor != 1)
      facts->across = 0; /* of another kind than the usual ones */
  }
  return 1;
}

static boolean decode_unit(j_decompress_ptr info, JBLOCKROW *blocks) {
  struct penstock_jpeg *jpeg = (struct penstock_jpeg *)info;
  ptrdiff_t used, last = info->blocks_in_MCU - 1;

  /* With one scan, the library keeps the blocks of one unit, one after another. */
  if (blocks != NULL && blocks[last] != blocks[0] + last) return FALSE;
  used = jpeg->wanted->unit(jpeg->wanted->decoder, blocks);
  if (used < 0) return FALSE;
  if (used > 0) {
    info->src->next_input_byte = jpeg->scan + used;
    info->src->bytes_in_buffer = jpeg->num_bytes - (size_t)used;
  }
  return TRUE;
}

/* Pass the scan to the decoder; 0 if the decoder refuses it. */
static int hand_over(struct penstock_jpeg *jpeg, unsigned left, unsigned align) {
  struct jpeg_decompress_struct *info = &jpeg->info;
  struct penstock_scan scan = {0};
  int i;

  for (i = 0; i < info->comps_in_scan; i++) {
    jpeg_component_info *component = info->cur_comp_info[i];
    struct penstock_component *told = &scan.components[i];
    JHUFF_TBL *first, *other;

    if (component->dc_tbl_no < 0 || component->dc_tbl_no >= NUM_HUFF_TBLS ||
        component->ac_tbl_no < 0 || component->ac_tbl_no >= NUM_HUFF_TBLS)
      return 0;
    first = info->dc_huff_tbl_ptrs[component->dc_tbl_no];
    other = info->ac_huff_tbl_ptrs[component->ac_tbl_no];
    if (first == NULL || other == NULL) return 0;
    told->first_counts = first->bits + 1;
    told->first_symbols = first->huffval;
    told->other_counts = other->bits + 1;
    told->other_symbols = other->huffval;
    told->is_wanted = component->component_needed;
    told->scaled_size = SCALED_SIZE(component);
  }
  for (i = 0; i < info->blocks_in_MCU; i++) scan.block_components[i] = info->MCU_membership[i];
  scan.num_components = info->comps_in_scan;
  scan.num_blocks = info->blocks_in_MCU;
  scan.interval = info->restart_interval;
  scan.columns = info->MCUs_per_row;
  scan.rows = info->MCU_rows_in_scan;
  scan.first_column = left / align;
  scan.last_column = (left + info->output_width - 1) / align;
  scan.bytes = info->src->next_input_byte;
  scan.num_bytes = info->src->bytes_in_buffer;
  jpeg->scan = scan.bytes;
  jpeg->num_bytes = scan.num_bytes;
  if (info->unread_marker != 0 || !jpeg->wanted->begin(jpeg->wanted->decoder, &scan)) return 0;
  info->entropy->decode_mcu = decode_unit;
  return 1;
}

/* Decode the file whose header the last call of penstock_jpeg_begin read. Returns whether it was decoded
 * and nothing was odd. */
int penstock_jpeg_decode(struct penstock_jpeg *jpeg, const struct penstock_wanted *wanted) {
  struct jpeg_decompress_struct *info = &jpeg->info;
  JDIMENSION left = 0, width, end, align;

  jpeg->wanted = wanted;
  if (setjmp(jpeg->leave)) goto failed;
  info->out_color_space = wanted->channels == 1   ? JCS_GRAYSCALE
                          : wanted->channels == 3 ? JCS_EXT_RGB
                                                  : JCS_CMYK;
  info->do_fancy_upsampling = TRUE;
  info->dct_method = wanted->is_quick ? JDCT_IFAST : JDCT_ISLOW;
  info->scale_num = 1;
  info->scale_denom = wanted->part;
  jpeg_start_decompress(info);
  align = LEAST_SIZE(info);
  if (info->num_components > 1) align *= info->max_h_samp_factor;
  if (wanted->is_region && (wanted->left != 0 || wanted->width != info->output_width)) {
    left = wanted->left;
    width = wanted->width;
    jpeg_crop_scanline(info, &left, &width);
    if (left != wanted->left || width != wanted->width) goto failed;
  }
  end = wanted->top + wanted->height;
  if (info->output_width != wanted->width || end > info->output_height ||
      (!wanted->is_region && end != info->output_height) ||
      (unsigned)info->output_components != wanted->channels)
    goto failed;
  if (!hand_over(jpeg, left, align)) goto failed;
  if (wanted->top != 0 && jpeg_skip_scanlines(info, wanted->top) != wanted->top) goto failed;
  while (info->output_scanline < end) {
    JSAMPROW rows[16];
    JDIMENSION i, num_rows = end - info->output_scanline;

    if (num_rows > 16) num_rows = 16;
    for (i = 0; i < num_rows; i++)
      rows[i] = wanted->pixels + (info->output_scanline - wanted->top + i) * wanted->row_bytes;
    if (jpeg_read_scanlines(info, rows, num_rows) == 0) goto failed;
  }
  if (end < info->output_height) jpeg_skip_scanlines(info, info->output_height - end);
  if (!jpeg_finish_decompress(info)) goto failed;
  return 1;

failed:
  jpeg_abort_decompress(info);
  return 0;
}
