//! The table of remedies: what to do about an error, in the words of each language.

mod named;

use std::fmt;

use super::conversions::from;
use super::language::Language;

impl Language {
    /// Names the option that asks for results on this device, for the copy log, which does not know who reads it.
    pub(crate) fn device_option(device: &str) -> String {
        match Self::of_consumers() {
            Self::Rust => format!("Conversion::device({device})"),
            Self::Python => format!("device=\"{device}\""),
        }
    }

    /// Names the option that asks for a copy, for the copy log.
    #[cfg(feature = "python")]
    pub(crate) fn copy_option() -> &'static str {
        match Self::of_consumers() {
            Self::Rust => "CopyMode::Always",
            Self::Python => "copy=True",
        }
    }
}

macro_rules! remedies {
    ($($(#[doc = $doc:literal])* $name:ident $({ $field:ident })? { $rust:literal, $python:literal $(,)? })+) => {
        /// What to do about an error.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "some errors are of the package's functions alone"))]
        pub(crate) enum Remedy {
            /// The same text in every language, without the name of an option.
            Text(String),
            /// One of two.
            Or(Box<Self>, Box<Self>),
            $($(#[doc = $doc])* $name $({ $field: String })?,)+
        }

        impl Remedy {
            /// Writes the remedy for a caller of this language.
            fn write(&self, language: Language, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match (self, language) {
                    (Self::Text(text), _) => f.write_str(text),
                    (Self::Or(first, second), _) => {
                        first.write(language, f)?;
                        f.write_str(", or ")?;
                        second.write(language, f)
                    }
                    $(
                        (Self::$name $({ $field })?, Language::Rust) => write!(f, $rust),
                        (Self::$name $({ $field })?, Language::Python) => write!(f, $python),
                    )+
                }
            }

            /// Every row of the table: its name, and what it says in Rust and in Python.
            #[cfg(test)]
            const TABLE: &[(&str, &str, &str)] = &[$((stringify!($name), $rust, $python)),+];
        }
    };
}

// What each says in Rust, and in Python.
remedies! {
    // Copies.
    AllowCopy { "pass CopyMode::IfNeeded to allow it", "pass copy=None to allow it" }
    CopyIfNeeded { "pass CopyMode::IfNeeded", "pass copy=None" }
    AllowRealigning { "pass CopyMode::IfNeeded to realign them", "pass copy=None to realign them" }
    AllowCopyOrReadOnly { "pass CopyMode::IfNeeded, or Conversion::writable(false)", "pass copy=None, or writable=False" }
    AllowCopyOrNoOutput { "pass CopyMode::IfNeeded, or no output for a view", "pass copy=None, or leave out= out for a view" }
    ToResults {
        "ask for Conversion::to_results of the data",
        "ask for it with to_tensors",
    }
    NoPadOfColumns { "select no columns, and MemoryOrder::C", "leave columns and order out, or pad" }
    AllowCopyOrNoPad { "pass CopyMode::IfNeeded to allow it, or no padding", "pass copy=None to allow it, or leave pad out" }
    AllowCopyOrRagged { "pass CopyMode::IfNeeded to allow it, or Group::ragged", "pass copy=None to allow it, or use ad.ragged" }
    LongerRow { length } {
        "pass a length of {length} or more, None for that of the longest row, or Pad::truncate to drop elements",
        "pass a length of {length} or more, None for that of the longest row, or truncate=\"right\" to drop elements",
    }
    AllowCopyOrOtherType {
        "pass CopyMode::IfNeeded to allow it, or another type",
        "pass copy=None to allow it, or another type",
    }
    OrderFOrAllowCopy {
        "pass MemoryOrder::F for the view that there is, or CopyMode::IfNeeded to allow a copy",
        "pass order=\"F\" for the view that there is, or copy=None to allow a copy",
    }
    OrderOfView {
        "pass MemoryOrder::F or MemoryOrder::A for the view that there is, or copy the data to the CPU first",
        "pass order=\"F\" or \"A\" for the view that there is, or copy the data to the CPU first",
    }
    // Nulls.
    Keep { "pass NullPolicy::Keep", "pass nulls=\"keep\"" }
    KeepRows { "pass NullPolicy::Keep for the validity of rows", "pass nulls=\"keep\" for the validity of rows" }
    KeepRowsOrFill {
        "pass NullPolicy::Keep for the validity of rows, or NullPolicy::Fill to fill null elements: null rows become empty",
        "pass nulls=\"keep\" for the validity of rows, or a value to fill null elements with: null rows become empty",
    }
    KeepOrNoNulls {
        "pass NullPolicy::Error where there are none, or NullPolicy::Keep, or copy the data to the CPU first",
        "pass nulls=\"error\" where there are none, or nulls=\"keep\", or copy the data to the CPU first",
    }
    Fill { "pass NullPolicy::Fill with a value", "pass a value to fill them with" }
    NanOrFill { "pass NullPolicy::Nan, or NullPolicy::Fill with a value", "pass nulls=\"nan\" or a value to fill them with" }
    FillOrKeep {
        "pass NullPolicy::Fill with a value, or NullPolicy::Keep",
        "pass a value to fill nulls with, or nulls=\"keep\"",
    }
    NanFillOrKeep {
        "pass NullPolicy::Nan, NullPolicy::Fill with a value, or NullPolicy::Keep",
        "pass nulls=\"nan\", a value to fill nulls with, or nulls=\"keep\"",
    }
    FillOrKeepElements {
        "pass NullPolicy::Fill with a value, or NullPolicy::Keep for whatever lies there",
        "pass a value to fill them with, or nulls=\"keep\" for whatever lies there",
    }
    NanFillOrKeepElements {
        "pass NullPolicy::Nan, NullPolicy::Fill with a value, or NullPolicy::Keep for whatever lies there",
        "pass nulls=\"nan\", a value to fill them with, or nulls=\"keep\" for whatever lies there",
    }
    FillOrValidity {
        "pass NullPolicy::Fill with a value, or NullPolicy::Keep and ask for the validity",
        "pass a value to fill them with, or nulls=\"keep\" and ask for validity()",
    }
    NanFillOrValidity {
        "pass NullPolicy::Nan, NullPolicy::Fill with a value, or NullPolicy::Keep and ask for the validity",
        "pass nulls=\"nan\", a value to fill them with, or nulls=\"keep\" and ask for validity()",
    }
    FloatOrFill {
        "pass DType::Float64, or NullPolicy::Fill with a value",
        "pass dtype=\"float64\", or a value to fill nulls with",
    }
    FloatOrFillByColumn { column } {
        "pass DType::Float64, or NullPolicy::Fill with a value; a PerColumn::Named sets either for columns alone, such as {column}",
        "pass dtype=\"float64\", or a value to fill nulls with; a dict sets either for some columns alone, such as \
         dtype={{{column}: \"float64\"}} with nulls={{{column}: \"nan\"}}",
    }
    ExactFill {
        "pass a fill value that the dtype holds exactly, or another dtype, such as DType::Float64",
        "pass a fill value that the dtype holds exactly, or another dtype, such as \"float64\"",
    }
    // Validity.
    BitmapOnDevice { "copy the data to the CPU first; Conversion::validity_bits gives the bitmap as it is",
        "copy the data to the CPU first; validity(bits=True) gives the bitmap as it is" }
    NoBitmap { "copy the data to the CPU first: Conversion::validity_bits has no bitmap of it to give",
        "copy the data to the CPU first: validity(bits=True) has no bitmap of it to give" }
    BitmapOfEachColumn {
        "ask for the bitmap of each column, or for the validity as bools",
        "ask for the bitmap of each column, or for validity() without bits",
    }
    BitmapOfEachChunk {
        "ask for the bitmap of each chunk, or for the validity as bools",
        "ask for the bitmap of each chunk, or for validity() without bits",
    }
    Bools { "ask for the validity as bools", "ask for validity() without bits" }
    BoolsOrCopyToHost {
        "ask for the validity as bools, or copy the data to the CPU first",
        "ask for validity() without bits, or copy the data to the CPU first",
    }
    CopyToHostOrBitmaps {
        "copy the data to Device::CPU first, or ask for the bitmap of each column",
        "copy the data to the CPU first, with to_device(\"cpu\"), or ask for the bitmap of each column",
    }
    PaddedOrCopyToHost {
        "convert the lists as padded rows, or copy the data to Device::CPU first",
        "pass the lists as ad.padded, or to to_ragged with pad=, or copy the data to the CPU first, with to_device(\"cpu\")",
    }
    ValidityOfColumn {
        "ask for the validity of this column alone, or leave it out of the columns",
        "ask for the validity of this column alone, or leave it out with columns=",
    }
    BoolOfEachRow {
        "pass a bool for each row, such as NullPolicy::Fill makes of it",
        "pass a bool for each row, such as validity.fill_null(False)",
    }
    TellNulls {
        "tell which rows are null with a validity, or set it to a code that there is",
        "tell which rows are null with to_arrow(validity=), or set it to a code that there is",
    }
    // Types.
    DictionaryCodes {
        "pass DictionaryMode::Codes for the indices into the dictionary, or Conversion::categories for codes of your own",
        "pass dictionary=\"codes\" for the indices into the dictionary, or categories= for codes of your own",
    }
    CommonCategories {
        "pass Conversion::categories with all values for codes that mean the same everywhere, or unify the dictionaries first",
        "pass a list of all values as categories= for codes that mean the same everywhere, or unify the dictionaries first",
    }
    Categories { "pass Conversion::categories for codes of the values", "pass categories= for codes of the values" }
    CategoriesOfRuns {
        "pass Conversion::categories for codes of the values, or decode the runs first and convert the text as ragged rows",
        "pass categories= for codes of the values, or decode the runs first, such as with pyarrow.compute.run_end_decode, for to_ragged",
    }
    RaggedOrCategories {
        "convert it as ragged rows for its bytes, or pass Conversion::categories for codes of the values",
        "pass it to to_ragged for its bytes, or pass categories= for codes of the values",
    }
    DecodeRuns { "decode the runs first", "decode the runs first, such as with pyarrow.compute.run_end_decode" }
    RowsOfOneLength { "its rows have one length: convert it with Conversion::to_tensor", "its rows have one length: pass it to to_tensor" }
    GroupOrLength { column } {
        "select it as Group::ragged, Group::padded or Group::arrow of {column}, or pass Conversion::length if all rows have one length",
        "name it in columns=, such as columns={{{column}: ad.ragged({column})}} for what to_ragged returns, or as ad.padded or ad.arrow, or pass length= if all rows have one length",
    }
    GroupOrCategories { column } {
        "select it as Group::padded, Group::ragged or Group::arrow of {column}, or pass Conversion::categories for codes of the values",
        "name it in columns=, such as columns={{{column}: ad.padded({column})}}, or as ad.ragged or ad.arrow, or pass categories= for codes of the values",
    }
    GroupOrFixedItems { column } {
        "select it as Group::ragged of {column}: Conversion::length makes rows of the outer lists alone",
        "name it in columns=, such as columns={{{column}: ad.ragged({column})}}: length= makes rows of the outer lists alone",
    }
    RaggedColumn { column } {
        "pick one of its columns, or select {column} as Group::ragged in Conversion::to_results",
        "pick one of its columns, such as to_tensors(data, columns={{{column}: ad.ragged({column})}})[{column}]",
    }
    FieldAsRows { path } {
        "select one of its fields by its path, such as {path} as Group::ragged",
        "name one of its fields by its path, such as columns={{{path}: ad.ragged({path})}}",
    }
    ColumnAsTensor { column } {
        "its rows have one length: select it as Group::column of {column}, or the fields of a struct by their paths",
        "its rows have one length: name the column alone, such as columns={{{column}: {column}}}, or the fields of a struct by their paths",
    }
    RaggedOrFixedItems {
        "convert it as ragged rows: Conversion::length makes rows of the outer lists alone",
        "pass it to to_ragged: length= makes rows of the outer lists alone",
    }
    Fields { path } {
        "name its fields by their paths, such as {path}, in Conversion::columns",
        "name its fields by their paths, such as columns=[{path}]",
    }
    FieldsOfLists {
        "make a column of lists for each field of the structs first",
        "make a column of lists for each field first, such as pyarrow.ListArray.from_arrays(lists.offsets, lists.values.field(name)) of a \
         pyarrow.ListArray without nulls",
    }
    FieldsOfFixedLists {
        "make a column of lists for each field of the structs first",
        "make a column of lists for each field first, such as pyarrow.FixedSizeListArray.from_arrays(lists.flatten().field(name), size) of \
         lists without nulls",
    }
    ArrowColumn { column } {
        "select it as Group::arrow of {column} to have it in Arrow",
        "name it in columns=, such as columns={{{column}: ad.arrow({column})}}, to have it in Arrow",
    }
    NoDtypeOfComplex {
        "set no Conversion::dtype to get the complex numbers as they are",
        "leave dtype out to get the complex numbers as they are",
    }
    NoDtypeAndCast {
        "set no Conversion::dtype, and cast the result in the library that takes it",
        "leave dtype out, and cast the result in the library that takes it",
    }
    CastElsewhere {
        "pass DType::Float32, and cast the result in the library that takes it",
        "pass dtype=\"float32\", and cast the result in the library that takes it",
    }
    NullCategory {
        "leave it out: NullPolicy::Fill gives nulls a code",
        "leave it out: a number for nulls= is the code of nulls",
    }
    MoreCategories {
        "pass a higher limit, or bin the values first",
        "pass limit= for more, or bin the values first",
    }
    UnknownCategory {
        "add it to the categories, or pass Categories::unknown with a code for such values",
        "add it to the categories, or pass unknown= with a code for such values",
    }
    DictionaryValues {
        "pass DictionaryMode::Values, or unify the dictionaries first",
        "pass dictionary=\"values\", or unify the dictionaries first",
    }
    CastInteger {
        "pass DType::Int64 or DType::Float64: a checked cast",
        "pass dtype=\"int64\" or \"float64\": a checked cast",
    }
    DecimalValues {
        "pass DType::Float64 for the values, or DecimalMode::Unscaled for the stored integers",
        "pass dtype=\"float64\" for the values, or decimal=\"unscaled\" for the stored integers",
    }
    WideDecimalValues {
        "pass DType::Float64 for the values, or DecimalMode::Unscaled with DType::Int64 for the stored integers",
        "pass dtype=\"float64\" for the values, or decimal=\"unscaled\" with dtype=\"int64\" for the stored integers",
    }
    LeaveOutOfUnit { "leave the column out of Conversion::unit", "leave the column out of unit=" }
    LengthOfOthers { "set Conversion::length for the other columns alone, or not at all for an array by itself",
        "pass a dict of the other columns as length=, or leave it out for an array by itself" }
    LeaveOutOfLength { "leave the column out of Conversion::length", "leave the column out of length=" }
    NoLengthOrBools { "set no Conversion::length, or ask for the validity as bools", "leave out length=, or bits=" }
    NoLength { "set no Conversion::length", "leave length= out" }
    RaggedOrLength {
        "convert it as ragged rows, or pass Conversion::length if all rows have one length",
        "pass it to to_ragged, or pass length= if all rows have one length",
    }
    RaggedOrPadded {
        "convert lists of several lengths as ragged or padded rows",
        "pass lists of several lengths to to_ragged, or as ad.padded or ad.ragged",
    }
    FillOfOwn {
        "leave the column out, and pass NullPolicy::Fill with a value of your own for it",
        "leave the column out, and pass a number of your own for it in nulls=",
    }
    CountsAlone {
        "ask for Statistic::Count or Statistic::NullCount, or leave the column out",
        "ask for its \"count\" or \"null_count\", or leave the column out",
    }
    MoreValuesOrMean {
        "pass a higher limit, or ask for Statistic::Mean",
        "pass a higher limit=, or ask for its \"mean\"",
    }
    MatrixDtype { "pass Conversion::dtype", "pass dtype=" }
    PromotedDtype {
        "pass Conversion::dtype, such as DType::Float64: a checked cast",
        "pass dtype=, such as dtype=\"float64\": a checked cast",
    }
    DtypeOfCodes {
        "pass Conversion::dtype for what they become, such as DType::Float64, or choose other columns",
        "pass dtype= for what they become, such as dtype=\"float64\", or choose other columns",
    }
    ColumnOfTable {
        "pass a batch that has it as a column, or convert the array alone with Conversion::to_tensor",
        "pass a table that has it as a column, such as series.to_frame() or pyarrow.table({{\"name\": array}}), or the \
         array alone to to_tensor",
    }
    CastForCategories {
        "cast the column to integers or strings first, or leave it out of Conversion::categories",
        "cast the column to integers or strings first, or leave it out of categories=",
    }
    CastListsForCategories {
        "cast the column to fixed-size lists first, or leave it out of Conversion::categories",
        "cast the column to fixed-size lists first, or leave it out of categories=",
    }
    UnitOfTicks {
        "pass Conversion::unit for numbers of one unit, with Conversion::dtype for their dtype, or choose other columns",
        "pass unit=\"s\", or another unit, for numbers of that unit, with dtype= for their dtype, or choose other columns",
    }
    DtypeOfTextCodes {
        "pass DictionaryMode::Codes and Conversion::dtype, such as DType::Float64, for the codes as numbers, or choose other columns",
        "pass dictionary=\"codes\" and dtype=\"float64\" for the codes as numbers, or choose other columns",
    }
    OutputDtype {
        "pass an output of the result's dtype, or its dtype as Conversion::dtype",
        "pass an out of the result's dtype, or the dtype of out as dtype=",
    }
    OutputShape { "pass an output of the result's shape", "pass an out of the result's shape" }
    BinaryType { "ask for DataType::Binary instead", "pass type=binary() instead" }
    // Columns.
    ColumnAlone { column } {
        "convert it by itself, or leave {column} out of the columns",
        "convert it by itself, to_tensor(data[{column}]), or leave it out with columns=",
    }
    MatrixOfAll { "select Selection::Whole for a matrix of all columns", "leave columns out for a matrix of all columns" }
    NoColumns { "select no columns of it", "leave columns= out" }
    FillInBatches {
        "ask for the validity of the group with Group::validity, or pass NullPolicy::Fill with a value, or NullPolicy::Nan",
        "ask for the validity of the group with group(..., validity=\"name\"), or pass a number to fill them with, or nulls=\"nan\"",
    }
    FillInPaddedBatches {
        "ask for the validity of the group with Group::validity, or pass NullPolicy::Fill with a value, or NullPolicy::Nan",
        "ask for the validity of the group with padded(..., validity=\"name\"), or pass a number to fill them with, or nulls=\"nan\"",
    }
    NamePandasIndex { "name it in the columns to convert it", "name it in columns= to convert it" }
    // Devices.
    CopyToHost {
        "copy it to Device::CPU first, by transfer::tensor_to_device or array_to_device",
        "copy it with .to_device(\"cpu\") first",
    }
    UseHost { "use Device::CPU", "use device=\"cpu\"" }
    OtherDevice {
        "copy it to another device, or leave it shared",
        "pass device= for a copy on another device, or copy=None",
    }
    LoaderDevice {
        "pass Device::CPU, a CUDA device or its page-locked memory, and copy the batches with the library that takes them",
        "pass \"cpu\", \"cuda_host\" or \"cuda:0\", and copy the batches with the library that takes them",
    }
    BeforeCapture { device } {
        "call stream_order::warm_up for {device} and make the result before the capture, or on another stream",
        "call ad.warm_up(\"{device}\") and make the result before the capture, or on another stream",
    }
    BeforeCaptureOrPlain { device } {
        "call stream_order::warm_up for {device} and make the result before the capture",
        "call ad.warm_up(\"{device}\") and make the result before the capture, or without `xp`",
    }
    WrittenBeforeCapture { device } {
        "call stream_order::warm_up for {device} and synchronise the data before the capture",
        "call ad.warm_up(\"{device}\") and synchronise the data before the capture, or pass stream=-1 if it is ordered otherwise",
    }
    DefaultStream {
        "pass Stream::LEGACY, or Stream::PER_THREAD",
        "pass 1 for the legacy default stream, or 2 for the per-thread default stream",
    }
    ForkEarlier {
        "start processes without a fork, or fork before CUDA is used",
        "start processes by \"spawn\" or \"forkserver\", or fork before CUDA is used",
    }
    RepeatableOrder {
        "read a source that yields the same rows in the same order each time, such as files or a query with ORDER BY over a unique key",
        "give a query an ORDER BY over a unique key, or pass files as shards: sources=parquet_shards(paths)",
    }
    ToldRows {
        "tell Shards::new the true number of rows of each shard",
        "pass each of sources= as (source, rows) with its true number of rows, or sources=parquet_shards(paths)",
    }
    ShuffleBytes {
        "pass a smaller buffer to Shuffle::new, or set a larger Shuffle::bytes",
        "pass a smaller shuffle_buffer=, or a larger shuffle_bytes=",
    }
    LanesForWorkers { lanes } {
        "read the shards in {lanes} lanes: pass Batches::of_shards a Place of as many; or start fewer workers",
        "pass sources= and lanes={lanes}, or fewer workers",
    }
    TakenState { "pass a state that a loader returned", "pass a dict that state_dict() returned" }
    ShuffleOfState {
        "pass the Shuffle and the LoadOptions::shuffle_shards of the loader that the state was taken from",
        "pass shuffle_buffer= and shuffle_shards= as to the loader that the state was taken from",
    }
    NotVerified {
        "resume without comparing all rows",
        "pass verify=\"replay\" to resume without comparing",
    }
    NoPrefetch { "set LoadOptions::prefetch to 0 to do without", "pass prefetch=0 to do without" }
}

impl Remedy {
    /// This, or another remedy.
    pub(crate) fn or(self, other: impl Into<Self>) -> Self {
        Self::Or(Box::new(self), Box::new(other.into()))
    }

    /// The text for a caller of this language.
    pub(crate) fn told_in(&self, language: Language) -> impl fmt::Display {
        RemedyText(self, language)
    }
}

struct RemedyText<'a>(&'a Remedy, Language);

impl fmt::Display for RemedyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(self.1, f)
    }
}

from! {
    [] &str => Remedy, |text| Self::Text(text.to_owned());
    [] String => Remedy, |text| Self::Text(text);
}

#[cfg(test)]
mod tests;
