//! Makes the plan of a column's validity.

use super::{Action, HostWait, Placement, Plan};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{CopyMode, Spec};

impl Plan {
    /// Returns the plan for a bool for each element of so many rows; `spec` is that of the validity.
    ///
    /// # Errors
    /// When no copy is allowed, or the result is larger than memory can be.
    pub(crate) fn validity(spec: &Spec, rows: usize, placement: Placement, copy: CopyMode) -> Result<Self> {
        let elements = rows.checked_mul(spec.row_elements()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let elements =
            elements.ok_or_else(|| Error::new(ErrorKind::Memory, "the validity is larger than memory can be"))?;
        let mut plan = Self { rows, elements, placement, ..Self::default() };
        if elements > 0 {
            plan.decode(spec, rows);
            plan.push(Action::Unpack, elements, false);
            plan.bytes = plan.bytes.saturating_add(elements);
        }
        plan.refuse_steps(copy)?;
        Ok(plan)
    }

    /// The plan of a validity on a device, for which values of codes or runs are looked up, or bitmaps alone tell it.
    pub(crate) fn waiting_for_codes(mut self, are_looked_up: bool) -> Self {
        self.waits.retain(|wait| *wait != HostWait::Codes);
        self.waits.extend(are_looked_up.then_some(HostWait::Codes));
        self
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::spec::Options;

    #[test]
    fn decoded_values_count_by_their_width() {
        let pairs = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int16, true)), 2);
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        for (values, decoded, elements) in [
            (DataType::Int64, 8, 1),
            (DataType::Decimal256(50, 2), 32, 1),
            (DataType::FixedSizeBinary(3), 3, 3),
            (DataType::Boolean, 1, 1),
            (DataType::Utf8, 1, 1),
            (codes, 1, 1),
            (pairs, 4, 2),
        ] {
            let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
            let runs = DataType::RunEndEncoded(ends, Arc::new(Field::new("values", values.clone(), true)));
            let plan = |data_type: &DataType, copy| {
                let spec = Spec::of_validity(&Arc::new(Field::new("x", data_type.clone(), true)), &Options::default())
                    .unwrap();
                Plan::validity(&spec, 10, Placement::Host, copy)
            };
            let made = plan(&runs, CopyMode::IfNeeded).unwrap();
            assert_eq!((made.elements, made.bytes), (10 * elements, 10 * (decoded + elements)), "{values}");
            assert_eq!(made.steps.iter().map(|step| step.action).collect::<Vec<_>>(), [Action::Decode, Action::Unpack]);
            assert_eq!(plan(&values, CopyMode::Always).unwrap().bytes, 10 * elements, "{values}");
            assert_eq!(plan(&values, CopyMode::Never).unwrap_err().kind(), ErrorKind::Copy, "{values}");
        }
    }
}
