//! What a format string says of the buffers and children, read here a second time so that the tests do not believe the
//! package.

/// How an array of a type holds its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bits,
    Fixed(usize),
    Bytes { wide: bool },
    View,
    List { wide: bool },
    ListView { wide: bool },
    FixedList(usize),
    Struct,
    Map,
    Sparse(Vec<i8>),
    Dense(Vec<i8>),
    Runs,
}

/// The bytes that a buffer must have for so many slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Bits,
    Slots(usize),
    Offsets(usize),
    /// As the last offset says, of this width.
    Data(usize),
}

impl Kind {
    /// The kind of a format string; `None` for one that is malformed.
    pub(crate) fn of(format: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(format.split(|byte| *byte == 0).next()?).ok()?;
        let fixed = |width| Some(Self::Fixed(width));
        match text {
            "n" => return Some(Self::Null),
            "b" => return Some(Self::Bits),
            "c" | "C" => return fixed(1),
            "s" | "S" | "e" => return fixed(2),
            "i" | "I" | "f" | "tdD" | "tts" | "ttm" | "tiM" => return fixed(4),
            "l" | "L" | "g" | "tdm" | "ttu" | "ttn" | "tDs" | "tDm" | "tDu" | "tDn" | "tiD" => return fixed(8),
            "tin" => return fixed(16),
            "z" | "u" => return Some(Self::Bytes { wide: false }),
            "Z" | "U" => return Some(Self::Bytes { wide: true }),
            "vz" | "vu" => return Some(Self::View),
            "+l" => return Some(Self::List { wide: false }),
            "+L" => return Some(Self::List { wide: true }),
            "+vl" => return Some(Self::ListView { wide: false }),
            "+vL" => return Some(Self::ListView { wide: true }),
            "+s" => return Some(Self::Struct),
            "+m" => return Some(Self::Map),
            "+r" => return Some(Self::Runs),
            _ => {}
        }
        let (kind, parameter) = text.split_once(':')?;
        let size = || parameter.parse::<i32>().ok().and_then(|size| usize::try_from(size).ok());
        match kind {
            "w" => fixed(size()?),
            "+w" => Some(Self::FixedList(size()?)),
            "tss" | "tsm" | "tsu" | "tsn" => fixed(8),
            "d" => {
                let bits = parameter.split(',').nth(2).unwrap_or("128").parse::<usize>().ok()?;
                [32, 64, 128, 256].contains(&bits).then_some(Self::Fixed(bits / 8))
            }
            "+us" | "+ud" => {
                let ids = parameter.split(',').filter(|id| !id.is_empty()).map(|id| id.parse::<i8>().ok());
                let ids = ids.collect::<Option<Vec<i8>>>()?;
                Some(if kind == "+us" { Self::Sparse(ids) } else { Self::Dense(ids) })
            }
            _ => None,
        }
    }

    /// The buffers in order; what follows them is variadic for views.
    pub(crate) fn sizes(&self) -> Vec<Size> {
        let offsets = |wide: bool| if wide { 8 } else { 4 };
        match self {
            Self::Null | Self::Runs => vec![],
            Self::Bits => vec![Size::Bits, Size::Bits],
            Self::Fixed(width) => vec![Size::Bits, Size::Slots(*width)],
            Self::Bytes { wide } => vec![Size::Bits, Size::Offsets(offsets(*wide)), Size::Data(offsets(*wide))],
            Self::View => vec![Size::Bits, Size::Slots(16)],
            Self::List { wide } => vec![Size::Bits, Size::Offsets(offsets(*wide))],
            Self::Map => vec![Size::Bits, Size::Offsets(4)],
            Self::ListView { wide } => {
                vec![Size::Bits, Size::Slots(offsets(*wide)), Size::Slots(offsets(*wide))]
            }
            Self::FixedList(_) | Self::Struct => vec![Size::Bits],
            Self::Sparse(_) => vec![Size::Slots(1)],
            Self::Dense(_) => vec![Size::Slots(1), Size::Slots(4)],
        }
    }

    /// Whether the first buffer is a validity bitmap.
    pub(crate) fn has_validity(&self) -> bool {
        self.sizes().first() == Some(&Size::Bits)
    }
}
