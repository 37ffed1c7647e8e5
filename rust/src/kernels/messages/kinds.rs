//! The kinds of messages, and their fields.

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Example,
    SequenceExample,
    Features,
    FeatureLists,
    FeatureList,
    Feature,
    BytesList,
    FloatList,
    Int64List,
}

/// A field of a message. Its number is its index, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in Python.
    pub name: &'static str,
    /// The kind of message in the field (for a map: of its values), or None for numbers and bytes.
    pub holds: Option<Kind>,
}

const fn field(name: &'static str, holds: Option<Kind>) -> Field {
    Field { name, holds }
}

impl Kind {
    /// The name of the class.
    pub fn name(self) -> &'static str {
        match self {
            Self::Example => "Example",
            Self::SequenceExample => "SequenceExample",
            Self::Features => "Features",
            Self::FeatureLists => "FeatureLists",
            Self::FeatureList => "FeatureList",
            Self::Feature => "Feature",
            Self::BytesList => "BytesList",
            Self::FloatList => "FloatList",
            Self::Int64List => "Int64List",
        }
    }

    /// The fields, in the order of their numbers.
    pub fn fields(self) -> &'static [Field] {
        const EXAMPLE: [Field; 1] = [field("features", Some(Kind::Features))];
        const SEQUENCE: [Field; 2] = [
            field("context", Some(Kind::Features)),
            field("feature_lists", Some(Kind::FeatureLists)),
        ];
        const FEATURES: [Field; 1] = [field("feature", Some(Kind::Feature))];
        const LISTS: [Field; 1] = [field("feature_list", Some(Kind::FeatureList))];
        const FEATURE: [Field; 3] = [
            field("bytes_list", Some(Kind::BytesList)),
            field("float_list", Some(Kind::FloatList)),
            field("int64_list", Some(Kind::Int64List)),
        ];
        const VALUES: [Field; 1] = [field("value", None)];
        match self {
            Self::Example => &EXAMPLE,
            Self::SequenceExample => &SEQUENCE,
            Self::Features | Self::FeatureList => &FEATURES,
            Self::FeatureLists => &LISTS,
            Self::Feature => &FEATURE,
            Self::BytesList | Self::FloatList | Self::Int64List => &VALUES,
        }
    }

    /// Whether the message holds values, not messages.
    pub(super) fn is_list(self) -> bool {
        matches!(self, Self::BytesList | Self::FloatList | Self::Int64List)
    }

    /// The kind of the field at an index. Only for fields that hold messages.
    pub(super) fn held(self, index: usize) -> Self {
        self.fields().get(index).and_then(|field| field.holds).unwrap_or(self)
    }
}
