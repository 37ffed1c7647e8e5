/* JPEG by libjpeg-turbo's older interface, which has options that the newer one lacks: which warnings are
 * errors, what happens if the data is truncated, and the exact bytes of a written file.
 *
 * A fault inside libjpeg is a long jump. Each starts and ends within one call of a function of this file,
 * so that it never crosses a frame of Rust. */

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

enum { MESSAGE = JMSG_LENGTH_MAX, ROWS = 16, MOST_REPEATS = 1 << 16 };

struct errors {
    struct jpeg_error_mgr base;
    jmp_buf out;
    char *message;
};

static void leave(j_common_ptr info) {
    struct errors *errors = (struct errors *)info->err;
    errors->base.format_message(info, errors->message);
    longjmp(errors->out, 1);
}

static void say_nothing(j_common_ptr info) { (void)info; }

static struct jpeg_error_mgr *catch_errors(struct errors *errors, char *message) {
    jpeg_std_error(&errors->base);
    errors->base.error_exit = leave;
    errors->base.output_message = say_nothing;
    errors->message = message;
    return &errors->base;
}

/* -- decoding ---------------------------------------------------------------------------------- */

/* The same as `Wanted` and `Found` in libjpeg.rs. */
struct wanted {
    int channels, ratio, fancy, fast, recover, crop, left, top, width, height, most_scans;
};
struct found {
    int width, height, channels;
    char message[MESSAGE];
};

struct source {
    struct jpeg_source_mgr base;
    const JOCTET *data;
    size_t length;
    int recover, repeats;
};

struct decoder {
    struct jpeg_decompress_struct info;
    struct errors errors;
    struct source source;
    struct jpeg_progress_mgr progress;
    struct wanted wanted;
    int cut; /* the rows that libjpeg gives begin left of those that are wanted by so many pixels */
};

static const JOCTET END[2] = {0xFF, JPEG_EOI};

static void source_begins(j_decompress_ptr info) {
    struct source *source = (struct source *)info->src;
    source->base.next_input_byte = source->data;
    source->base.bytes_in_buffer = source->length;
}

/* The data ended. If libjpeg asks in the middle of a block, it still counts the bytes of the block as unread.
 * They are returned once more if a truncated file is decoded as far as possible; otherwise reading ends. Then
 * one end marker of the image is made up, and no more. Some readers of libjpeg would read the same bytes
 * forever, so the number of times that they are returned is limited. */
static boolean source_is_empty(j_decompress_ptr info) {
    struct source *source = (struct source *)info->src;
    if (source->base.bytes_in_buffer == 0 && source->base.next_input_byte == source->data) {
        ERREXIT(info, JERR_INPUT_EMPTY);
    }
    if (source->base.bytes_in_buffer > 0 && !source->recover) return FALSE;
    if (source->base.bytes_in_buffer > 0) {
        if (++source->repeats > MOST_REPEATS) ERREXIT(info, JERR_FILE_READ);
        return TRUE;
    }
    if (!source->recover || source->base.next_input_byte == END) ERREXIT(info, JERR_FILE_READ);
    WARNMS(info, JWRN_JPEG_EOF);
    source->base.next_input_byte = END;
    source->base.bytes_in_buffer = 2;
    return TRUE;
}

static void source_skips(j_decompress_ptr info, long bytes) {
    struct jpeg_source_mgr *source = info->src;
    if (bytes <= 0) return;
    if ((size_t)bytes > source->bytes_in_buffer) {
        source->bytes_in_buffer = 0;
        return;
    }
    source->next_input_byte += bytes;
    source->bytes_in_buffer -= (size_t)bytes;
}

static void source_ends(j_decompress_ptr info) { (void)info; }

/* A few bytes of a progressive file can request another pass over the whole picture. */
static void count_scans(j_common_ptr common) {
    j_decompress_ptr info = (j_decompress_ptr)common;
    struct decoder *decoder = (struct decoder *)info->client_data;
    if (common->is_decompressor && info->input_scan_number > decoder->wanted.most_scans) {
        snprintf(decoder->errors.message, MESSAGE, "more than %d scans", decoder->wanted.most_scans);
        longjmp(decoder->errors.out, 1);
    }
}

static int refuse(struct found *found, const char *message) {
    snprintf(found->message, MESSAGE, "%s", message);
    return 0;
}

void penstock_jpeg_close(struct decoder *decoder) {
    if (decoder == NULL) return;
    jpeg_destroy_decompress(&decoder->info);
    free(decoder);
}

static void set_source(struct decoder *decoder, const unsigned char *bytes, size_t length) {
    struct source *source = &decoder->source;
    source->data = bytes;
    source->length = length;
    source->recover = decoder->wanted.recover;
    source->base.init_source = source_begins;
    source->base.fill_input_buffer = source_is_empty;
    source->base.skip_input_data = source_skips;
    source->base.resync_to_restart = jpeg_resync_to_restart;
    source->base.term_source = source_ends;
    decoder->info.src = &source->base;
}

static int begin(struct decoder *decoder, const unsigned char *bytes, size_t length,
                 struct found *found) {
    j_decompress_ptr info = &decoder->info;
    const struct wanted *wanted = &decoder->wanted;
    if (setjmp(decoder->errors.out)) return 0;
    jpeg_create_decompress(info);
    info->client_data = decoder;
    decoder->progress.progress_monitor = count_scans;
    info->progress = &decoder->progress;
    set_source(decoder, bytes, length);
    jpeg_read_header(info, TRUE);
    int channels = wanted->channels;
    if (channels == 0) channels = info->num_components < 3 ? info->num_components : 3;
    if (channels == 1) {
        info->out_color_space = JCS_GRAYSCALE;
    } else if (channels != 3) {
        return refuse(found, "neither one nor three channels");
    } else if (info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK) {
        info->out_color_space = JCS_CMYK;
    } else {
        info->out_color_space = JCS_RGB;
    }
    info->do_fancy_upsampling = wanted->fancy ? TRUE : FALSE;
    info->scale_num = 1;
    info->scale_denom = (unsigned)wanted->ratio;
    info->dct_method = wanted->fast ? JDCT_IFAST : JDCT_ISLOW;
    jpeg_calc_output_dimensions(info);
    found->width = (int)info->output_width;
    found->height = (int)info->output_height;
    found->channels = channels;
    if (wanted->crop) {
        long right = (long)wanted->left + wanted->width, bottom = (long)wanted->top + wanted->height;
        if (wanted->left < 0 || wanted->top < 0 || wanted->width <= 0 || wanted->height <= 0 ||
            right > found->width || bottom > found->height) {
            return refuse(found, "the crop window is not within the image");
        }
        found->width = wanted->width;
        found->height = wanted->height;
    }
    return 1;
}

/* Reads the header, and stores the decoded size in `found`. NULL after a fault, which is then in `found`. */
struct decoder *penstock_jpeg_open(const unsigned char *bytes, size_t length,
                                   const struct wanted *wanted, struct found *found) {
    struct decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) {
        refuse(found, "no memory for a JPEG decoder");
        return NULL;
    }
    decoder->wanted = *wanted;
    decoder->info.err = catch_errors(&decoder->errors, found->message);
    if (begin(decoder, bytes, length, found)) return decoder;
    penstock_jpeg_close(decoder);
    return NULL;
}

/* Inks to colours; Adobe's files store them inverted. */
static void from_inks(const JSAMPLE *inks, JSAMPLE *pixels, int width, int inverted) {
    for (int x = 0; x < width; x++, inks += 4, pixels += 3) {
        int black = inverted ? inks[3] : 255 - inks[3];
        for (int ink = 0; ink < 3; ink++) {
            int other = inverted ? inks[ink] : 255 - inks[ink];
            pixels[ink] = (JSAMPLE)(black * other / 255);
        }
    }
}

/* Decodes into consecutive rows. Returns the number of rows read, or -1 after a fault. */
int penstock_jpeg_read(struct decoder *decoder, unsigned char *pixels, struct found *found) {
    j_decompress_ptr info = &decoder->info;
    const struct wanted *wanted = &decoder->wanted;
    /* Variables changed between here and a long jump are not read after it. */
    decoder->errors.message = found->message;
    if (setjmp(decoder->errors.out)) return -1;
    if (!jpeg_start_decompress(info)) {
        refuse(found, "the data ends too early");
        return -1;
    }
    size_t row_bytes = (size_t)found->width * (size_t)found->channels;
    if (wanted->crop) {
        JDIMENSION left = (JDIMENSION)wanted->left, width = (JDIMENSION)wanted->width;
        jpeg_crop_scanline(info, &left, &width);
        decoder->cut = wanted->left - (int)left;
        if (wanted->top > 0) jpeg_skip_scanlines(info, (JDIMENSION)wanted->top);
    }
    int inks = info->out_color_space == JCS_CMYK;
    int beside = inks || (int)info->output_width != found->width;
    JSAMPARRAY aside = NULL;
    if (beside) {
        JDIMENSION length = info->output_width * (JDIMENSION)info->out_color_components;
        aside = info->mem->alloc_sarray((j_common_ptr)info, JPOOL_IMAGE, length, 1);
    }
    int row = 0;
    while (row < found->height) {
        unsigned char *at = pixels + (size_t)row * row_bytes;
        int got;
        if (beside) {
            got = (int)jpeg_read_scanlines(info, aside, 1);
            if (got) {
                const JSAMPLE *from = aside[0] + decoder->cut * info->out_color_components;
                if (inks) from_inks(from, at, found->width, info->saw_Adobe_marker);
                else memcpy(at, from, row_bytes);
            }
        } else {
            JSAMPROW rows[ROWS];
            int left = found->height - row, count = left < ROWS ? left : ROWS;
            for (int i = 0; i < count; i++) rows[i] = at + (size_t)i * row_bytes;
            got = (int)jpeg_read_scanlines(info, rows, (JDIMENSION)count);
        }
        if (got == 0) break;
        row += got;
    }
    if (row == found->height) {
        if (info->output_scanline < info->output_height) {
            jpeg_skip_scanlines(info, info->output_height - info->output_scanline);
        }
        jpeg_finish_decompress(info);
        return row;
    }
    refuse(found, "the data ends too early");
    if (!wanted->recover) {
        memset(pixels + (size_t)row * row_bytes, 0, (size_t)(found->height - row) * row_bytes);
        return row;
    }
    for (int y = row; y < found->height; y++) {
        unsigned char *at = pixels + (size_t)y * row_bytes;
        if (y == 0) memset(at, 0, row_bytes);
        else memcpy(at, at - row_bytes, row_bytes);
    }
    return found->height;
}

/* -- encoding ---------------------------------------------------------------------------------- */

/* The same as `Manner` in libjpeg.rs. */
struct manner {
    int width, height, channels, quality, progressive, optimize, chroma_downsampling;
    int density_unit, x_density, y_density;
};

static const char XMP[] = "http://ns.adobe.com/xap/1.0/"; /* including its final zero */

/* Encodes pixels of one or three channels into memory that `penstock_jpeg_free` must free. Returns 0 after a
 * fault. */
int penstock_jpeg_encode(const unsigned char *pixels, const struct manner *manner,
                         const unsigned char *xmp, size_t xmp_length, unsigned char **made,
                         size_t *made_length, char *message) {
    struct jpeg_compress_struct info;
    struct errors errors;
    unsigned long length = 0;
    info.err = catch_errors(&errors, message);
    if (setjmp(errors.out)) {
        jpeg_destroy_compress(&info);
        return 0;
    }
    memset((char *)&info + sizeof info.err, 0, sizeof info - sizeof info.err);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, made, &length);
    info.image_width = (JDIMENSION)manner->width;
    info.image_height = (JDIMENSION)manner->height;
    info.input_components = manner->channels;
    info.in_color_space = manner->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    if (manner->optimize) info.optimize_coding = TRUE;
    info.density_unit = (UINT8)manner->density_unit;
    info.X_density = (UINT16)manner->x_density;
    info.Y_density = (UINT16)manner->y_density;
    jpeg_set_quality(&info, manner->quality, TRUE);
    if (manner->progressive) jpeg_simple_progression(&info);
    if (!manner->chroma_downsampling) {
        for (int i = 0; i < info.num_components; i++) {
            info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
        }
    }
    jpeg_start_compress(&info, TRUE);
    if (xmp_length > 0) {
        jpeg_write_m_header(&info, JPEG_APP0 + 1, (unsigned)(xmp_length + sizeof XMP));
        for (size_t i = 0; i < sizeof XMP; i++) jpeg_write_m_byte(&info, XMP[i]);
        for (size_t i = 0; i < xmp_length; i++) jpeg_write_m_byte(&info, xmp[i]);
    }
    size_t row_bytes = (size_t)manner->width * (size_t)manner->channels;
    while (info.next_scanline < info.image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + (size_t)info.next_scanline * row_bytes);
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    *made_length = (size_t)length;
    return 1;
}

void penstock_jpeg_free(unsigned char *made) { free(made); }
