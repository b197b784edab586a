//! The units of temporal types, and the numbers of ticks in them.

use arrow_schema::{DataType, TimeUnit};

/// Returns the bytes and the unit of the ticks of a temporal type; `None` for any other, and for days.
pub(super) fn ticks(data_type: &DataType) -> Option<(usize, TimeUnit)> {
    match data_type {
        DataType::Timestamp(unit, _) | DataType::Duration(unit) | DataType::Time64(unit) => Some((8, *unit)),
        DataType::Date64 => Some((8, TimeUnit::Millisecond)),
        DataType::Time32(unit) => Some((4, *unit)),
        _ => None,
    }
}

/// Returns whether the values of a type, under fixed-size lists, are times, or days, which become times under `unit=`.
pub(super) fn is_temporal(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(item, _) => is_temporal(item.data_type()),
        other => *other == DataType::Date32 || ticks(other).is_some(),
    }
}

/// The name of a unit, as in `unit=`.
pub(super) fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// The power of ten of a unit's ticks in a second.
pub(super) const fn digits(unit: TimeUnit) -> i8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}
