//! [`Report`]: what a conversion would do, as rows and as text.

use std::fmt;

use arrow_schema::FieldRef;

use super::host_only::HostOnly;
use crate::column::PlannedColumn;
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Language, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{Placement, Plan};
use crate::spec::Spec;

/// The report of [`Conversion::explain`](crate::Conversion::explain): one row for each column. Its text is a table.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// The rows, in the order of the columns.
    pub rows: Vec<ReportRow>,
    /// A row for each matrix that columns are packed into; none where each column is a tensor of its own.
    pub matrices: Vec<ReportRow>,
    /// How the data gets to the host before it is converted there.
    pub transfer: Option<ReportRow>,
    /// The index columns of pandas that were left out.
    pub left_out: Vec<String>,
    /// What belongs to no row: that it took a query to know the types, say.
    pub notes: Vec<String>,
}

/// What would happen to one column.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReportRow {
    /// The column's name.
    pub column: String,
    /// Its Arrow type.
    pub arrow_type: String,
    /// The dtype of the tensor; `None` where the conversion is refused by type.
    pub dtype: Option<DType>,
    /// The shape of the tensor; `None` stands for the number of rows, which a schema does not tell.
    pub shape: Vec<Option<i64>>,
    /// Where the tensor would be.
    pub device: Device,
    /// Whether the tensor would share memory with the column.
    pub view: bool,
    /// What would be done, in order.
    pub steps: Vec<String>,
    /// Whether kernels on a device do what is done, in one pass.
    pub kernel: bool,
    /// What the host would wait for: work on a device.
    pub waits: Vec<String>,
    /// Whether the last step is the way to the device that was asked for.
    pub(super) is_sent: bool,
    /// Bytes of a copy of the Arrow data that it is, which no shape tells.
    pub(super) arrow_bytes: Option<usize>,
    /// What types say of the columns that it is made of, where no data was seen.
    pub(super) specs: Vec<Spec>,
    /// The step that no kernel does for any data of its types.
    pub(super) host_only: Option<HostOnly>,
    /// Of a validity: the columns that it is of.
    pub(super) validity_specs: Vec<Spec>,
    /// Bytes that would move, at most; 0 where a schema does not tell the number of rows. Not counted is the padding in a device's copy of an
    /// Arrow batch whose rows are joined first.
    pub bytes: usize,
    /// Whether only data that was not looked at decides if the steps are needed.
    pub at_most: bool,
    /// What data that was not looked at may hold, for which the conversion would be refused.
    pub refused_if: Vec<String>,
    /// Of a matrix: why it has its dtype.
    pub promotion: Option<String>,
    /// Why the conversion would be refused.
    pub error: Option<Error>,
}

impl Report {
    /// Bytes that would move in all columns together, and before, on the way to another device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rows.iter().chain(&self.transfer).fold(0, |bytes, row| bytes.saturating_add(row.bytes))
    }

    /// Both reports as one.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self.matrices.extend(other.matrices);
        self
    }

    /// Whether the only result is refused.
    pub(crate) fn is_refused(&self) -> bool {
        let rows = if self.matrices.is_empty() { &self.rows } else { &self.matrices };
        rows.iter().any(|row| row.error.is_some())
    }

    /// The same report, in which the only result is refused, for this reason.
    pub(crate) fn refused_by(mut self, error: Error) -> Self {
        let rows = if self.matrices.is_empty() { &mut self.rows } else { &mut self.matrices };
        if let Some(row) = rows.first_mut() {
            (row.error, row.view, row.bytes) = (Some(error), false, 0);
            row.steps.clear();
            row.waits.clear();
        }
        self
    }

    /// The report of a group's column, which is called as the group then, or of its matrix.
    pub(crate) fn in_group(mut self, group: &str) -> Self {
        for row in if self.matrices.is_empty() { &mut self.rows } else { &mut self.matrices } {
            group.clone_into(&mut row.column);
            row.error = row.error.take().map(|error| error.in_group(group));
        }
        for row in self.rows.iter_mut().chain(&mut self.matrices) {
            row.error = row.error.take().map(Error::of_named_results);
        }
        self
    }
}

impl ReportRow {
    pub(super) fn new(field: &FieldRef) -> Self {
        Self::of_type(field.name().clone(), field.data_type().to_string())
    }

    /// A row that tells nothing else yet.
    pub(crate) fn of_type(column: impl Into<String>, arrow_type: String) -> Self {
        Self {
            column: column.into(),
            arrow_type,
            dtype: None,
            shape: Vec::new(),
            device: Device::CPU,
            view: false,
            steps: Vec::new(),
            kernel: false,
            waits: Vec::new(),
            is_sent: false,
            arrow_bytes: None,
            specs: Vec::new(),
            host_only: None,
            validity_specs: Vec::new(),
            bytes: 0,
            at_most: false,
            refused_if: Vec::new(),
            promotion: None,
            error: None,
        }
    }

    /// Whether the last step is the way to the device that was asked for.
    #[cfg(feature = "python")]
    pub(crate) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Sets whether the last step is that.
    #[cfg(feature = "python")]
    pub(crate) fn sent(self, is_sent: bool) -> Self {
        Self { is_sent, ..self }
    }

    /// Sets what the spec alone says.
    pub(super) fn describe(&mut self, spec: &Spec) {
        self.dtype = Some(spec.dtype());
        self.shape = std::iter::once(None).chain(spec.inner_shape().iter().copied().map(Some)).collect();
    }

    /// Sets what a planned column says.
    ///
    /// # Errors
    /// When it will be refused, as far as the plan knows.
    pub(super) fn take_planned(&mut self, planned: &PlannedColumn<'_>) -> Result<()> {
        planned.check()?;
        self.take_column(planned.plan());
        self.refuse_values(planned.copy());
        Ok(())
    }

    /// Sets what a plan says: its steps, where they are done, what the host waits for.
    pub(super) fn take(&mut self, plan: &Plan) {
        self.steps = plan.steps.iter().map(|step| step.action.to_string()).collect();
        self.waits = plan.waits.iter().map(ToString::to_string).collect();
        (self.bytes, self.at_most, self.view) = (plan.bytes, !plan.is_view() && !plan.is_copy(), plan.is_view());
        if let Placement::Kernels(_) = plan.placement {
            self.set_kernel(plan.is_copy());
        }
    }

    /// As [`ReportRow::take`], of data at hand: the plan knows its rows.
    pub(super) fn take_rows(&mut self, plan: &Plan) {
        self.shape.first_mut().into_iter().for_each(|rows| *rows = i64::try_from(plan.rows).ok());
        self.take(plan);
    }

    /// As [`ReportRow::take`], of a column, which says of each step whether only values decide if it is needed.
    pub(super) fn take_column(&mut self, plan: &Plan) {
        self.take_rows(plan);
        for (text, _) in self.steps.iter_mut().zip(&plan.steps).filter(|(_, step)| step.at_most) {
            text.push_str(", if there are any");
        }
    }

    /// Sets that kernels make the result, if there are steps on CUDA. `is_copy`: in any case.
    pub(super) fn set_kernel(&mut self, is_copy: bool) {
        self.kernel = is_cuda(self.device) && !self.steps.is_empty();
        if self.kernel && is_copy {
            self.device = Device::new(DLDeviceType::CUDA, self.device.id());
        }
    }

    pub(super) fn fill(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) {
        self.error = work(self).err();
        self.view = self.error.is_none() && self.steps.is_empty();
    }

    /// The shape as text, `n` for the number of rows that is not known.
    fn shape_text(&self) -> String {
        let extents: Vec<String> = self
            .shape
            .iter()
            .map(|extent| extent.map_or_else(|| "n".to_owned(), |extent| extent.to_string()))
            .collect();
        match extents.as_slice() {
            [] => String::new(),
            [only] => format!("({only},)"),
            several => format!("({})", several.join(", ")),
        }
    }

    /// `"view"`, `"copy"`, `"view or copy"` where data that was not looked at decides, or `"refused"`.
    #[must_use]
    pub fn how(&self) -> &'static str {
        match (&self.error, self.view, self.at_most) {
            (Some(_), _, _) => "refused",
            (None, true, _) => "view",
            (None, false, true) => "view or copy",
            (None, false, false) => "copy",
        }
    }

    /// The bytes as text: unknown where bytes move and the number of rows is not known.
    fn bytes_text(&self) -> String {
        let known = self.view || self.error.is_some() || self.shape.first().is_none_or(Option::is_some);
        if known { self.bytes.to_string() } else { "?".to_owned() }
    }

    fn cells(&self, language: Language) -> [String; 8] {
        let why = match &self.error {
            Some(error) => match error.remedy_in(language) {
                Some(remedy) => format!("{}; {remedy}", error.reason()),
                None => error.reason().to_owned(),
            },
            None if self.view => "the layouts agree".to_owned(),
            None if self.kernel => {
                let (converted, sent) = self.steps.split_at(self.steps.len().saturating_sub(usize::from(self.is_sent)));
                let by_kernel = format!("{} by a kernel", converted.join(", "));
                std::iter::once(&by_kernel).chain(sent).map(String::as_str).collect::<Vec<_>>().join(", ")
            }
            None => self.steps.join(", "),
        };
        let with = |before: &str, texts: &[String], separator: &str| {
            let is_said = self.error.is_none() && !texts.is_empty();
            is_said.then(|| format!("{before}{}", texts.join(separator)))
        };
        let (waits, refused_if) =
            (with("the host waits: ", &self.waits, ", "), with("refused if ", &self.refused_if, ", or "));
        let clauses = [Some(why).filter(|why| !why.is_empty()), waits, refused_if];
        let why = clauses.into_iter().flatten().collect::<Vec<_>>().join("; ");
        let dtype = self.dtype.map_or_else(|| "-".to_owned(), |dtype| dtype.to_string());
        let how = self.how().to_owned();
        let device = self.device.to_string();
        let (column, arrow_type) = (on_one_line(&self.column), self.arrow_type.clone());
        [column, arrow_type, dtype, self.shape_text(), device, how, self.bytes_text(), why]
    }
}

impl ReportRow {
    /// The cells of a matrix.
    fn matrix_cells(&self, language: Language) -> [String; 8] {
        let [mut name, _, dtype, shape, device, how, bytes, mut why] = self.cells(language);
        if name.is_empty() {
            "matrix".clone_into(&mut name);
        }
        match (&self.error, &self.promotion) {
            // Of several columns, one on each line.
            (Some(error), _) => why = error.told_in(language).to_string().replace('\n', "; "),
            (None, Some(promotion)) => why = format!("{promotion}; {why}"),
            (None, None) => {}
        }
        [name, String::new(), dtype, shape, device, how, bytes, why]
    }

    /// The cells of what is moved before it is converted.
    fn transfer_cells(&self, language: Language) -> [String; 8] {
        let [_, _, _, shape, device, how, bytes, why] = self.cells(language);
        ["all".to_owned(), String::new(), String::new(), shape, device, how, bytes, why]
    }
}

impl Report {
    /// The cells of its text, the head first.
    pub(crate) fn cells(&self, language: Language) -> Vec<Vec<String>> {
        // Of host memory alone nobody asks where it is.
        const DEVICE: usize = 4;
        let has_devices = self.has_devices();
        let is_shown = |column: usize| column != DEVICE || has_devices;
        let head = ["column", "Arrow type", "dtype", "shape", "device", "how", "bytes", "why"].map(str::to_owned);
        let rows = self.rows.iter().map(|row| row.cells(language));
        let rows = rows.chain(self.matrices.iter().map(|row| row.matrix_cells(language)));
        let rows = self.transfer.iter().map(|row| row.transfer_cells(language)).chain(rows);
        let shown = |row: [String; 8]| row.into_iter().enumerate().filter(|(column, _)| is_shown(*column));
        std::iter::once(head).chain(rows).map(|row| shown(row).map(|(_, cell)| cell).collect()).collect()
    }

    /// Whether anything is elsewhere than in ordinary host memory.
    fn has_devices(&self) -> bool {
        self.transfer.is_some() || self.rows.iter().chain(&self.matrices).any(|row| !row.device.is_cpu())
    }

    /// The lines below the table: what belongs to no row.
    pub(crate) fn remarks(&self, language: Language) -> Vec<String> {
        let (names, remedy) = (self.left_out.join(", "), Remedy::NamePandasIndex.told_in(language));
        let left_out = format!("left out, as pandas' index: {names}; {remedy}");
        Some(left_out).filter(|_| !self.left_out.is_empty()).into_iter().chain(self.notes.iter().cloned()).collect()
    }
}

impl Report {
    /// The report for a caller of this language.
    pub(crate) fn told_in(&self, language: Language) -> impl fmt::Display {
        ReportText(self, language)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.told_in(Language::Rust).fmt(f)
    }
}

/// Returns a name as it is; quoted, if it has characters that do not print, such as an end of line.
fn on_one_line(name: &str) -> String {
    let prints = |character: char| matches!(character, '"' | '\'' | '\\') || character.escape_debug().len() == 1;
    if name.chars().all(prints) { name.to_owned() } else { format!("{name:?}") }
}

/// Characters of a cell that the other rows are aligned to. A name has as many as its author likes, and only moves its own row beyond.
const WIDEST: usize = 100;

struct ReportText<'a>(&'a Report, Language);

impl fmt::Display for ReportText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(report, language) = self;
        let table = report.cells(language);
        let widths: Vec<usize> = (0..8)
            .map(|column| {
                let cells = table.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count().min(WIDEST)).max().unwrap_or(0)
            })
            .collect();
        for (number, row) in table.iter().enumerate() {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width)).collect();
            if number > 0 {
                writeln!(f)?;
            }
            f.write_str(cells.join("  ").trim_end())?;
        }
        report.remarks(language).iter().try_for_each(|remark| write!(f, "\n{remark}"))
    }
}
