#![allow(warnings, clippy::all)]
use std::mem::MaybeUninit;
use std::sync::Arc;

use arrow_array::*;
use arrow_schema::{DataType, Field};

use super::*;
use crate::alloc::HostBuffer;
use crate::arrow::DeviceArray;
use crate::dtype::DType;
use crate::spec::Spec;
use crate::spec::{NullPolicy, Options};

struct Random(u64);
impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn column(kind: &str, rows: usize, r: &mut Random) -> ArrayRef {
    match kind {
        "f32" => Arc::new(Float32Array::from_iter_values((0..rows).map(|_| (r.next() >> 40) as f32))),
        "f64" => Arc::new(Float64Array::from_iter_values((0..rows).map(|_| (r.next() >> 40) as f64))),
        "i32" => Arc::new(Int32Array::from_iter_values((0..rows).map(|_| (r.next() >> 40) as i32))),
        "i64" => Arc::new(Int64Array::from_iter_values((0..rows).map(|_| (r.next() >> 40) as i64))),
        "u64" => Arc::new(UInt64Array::from_iter_values((0..rows).map(|_| (r.next() >> 40) as u64))),
        "i16" => Arc::new(Int16Array::from_iter_values((0..rows).map(|_| (r.next() >> 50) as i16))),
        "u8" => Arc::new(UInt8Array::from_iter_values((0..rows).map(|_| (r.next() >> 50) as u8))),
        "f16" => {
            Arc::new(Float16Array::from_iter_values((0..rows).map(|_| half::f16::from_f32((r.next() >> 54) as f32))))
        }
        "null" => Arc::new(Float32Array::from_iter((0..rows).map(|_| (r.next() >> 32 & 1023 >= 102).then_some(1.5)))),
        "bool" => Arc::new(BooleanArray::from_iter((0..rows).map(|_| Some(r.next() >> 32 & 1 == 1)))),
        _ => panic!(),
    }
}

struct Instant(f64);
impl Instant {
    fn now() -> Self {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
        Self(t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9)
    }
    fn elapsed(&self) -> std::time::Duration {
        std::time::Duration::from_secs_f64(Self::now().0 - self.0)
    }
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

fn env(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or(default.to_owned())
}

/// CASES=kinds:columns:dtype[:rows],... ISAS=avx512,avx2 ROUNDS=21
pub fn bench() {
    let cases = env("CASES", "f32:4,f32:16,f32:64,f32:256,i32+f64:64,null:64,bool:64");
    let rounds: usize = env("ROUNDS", "15").parse().unwrap();
    let isas: Vec<Isa> = Isa::available()
        .iter()
        .rev()
        .copied()
        .filter(|isa| env("ISAS", "Avx512,Avx2,Portable").contains(&format!("{isa:?}")))
        .collect();
    println!(
        "{:24} {:>9} {:>8}  {}",
        "case",
        "memcpy ms",
        "GB/s",
        isas.iter().map(|i| format!("{i:?}")).collect::<Vec<_>>().join("  ")
    );
    for case in cases.split(',') {
        let mut parts = case.split(':');
        let kinds: Vec<&str> = parts.next().unwrap().split('+').collect();
        let columns: usize = parts.next().unwrap().parse().unwrap();
        let dtype = match parts.next().unwrap_or("f32") {
            "f32" => DType::Float32,
            "f64" => DType::Float64,
            "f16" => DType::Float16,
            "u8" => DType::UInt8,
            "i16" => DType::Int16,
            "bool" => DType::Bool,
            "i64" => DType::Int64,
            "i32" => DType::Int32,
            "c128" => DType::Complex128,
            _ => panic!(),
        };
        let rows: usize = parts.next().unwrap_or("1000000").parse().unwrap();
        let mut r = Random(88172645463325252);
        let arrays: Vec<DeviceArray> = (0..columns)
            .map(|c| {
                let array = column(kinds[c % kinds.len()], rows, &mut r);
                let array = if env("ALIGN", "64") == "64" {
                    let data = array.to_data();
                    let buffers = data.buffers().iter().map(|b| arrow_buffer::Buffer::from_slice_ref(b.as_slice())).collect();
                    let nulls = data.nulls().map(|n| arrow_buffer::Buffer::from_slice_ref(n.inner().values()));
                    make_array(data.into_builder().buffers(buffers).nulls(None).null_bit_buffer(nulls).build().unwrap())
                } else { array };
                let field = Arc::new(Field::new(format!("c{c}"), array.data_type().clone(), true));
                DeviceArray::from_arrow(&*array, field).unwrap()
            })
            .collect();
        let mut options = Options::default().dtype(dtype);
        if kinds.contains(&"null") {
            options = options.nulls(NullPolicy::Nan);
        }
        let specs: Vec<Spec> = arrays.iter().map(|a| Spec::new(a.field(), &options).unwrap()).collect();
        let chunks: Vec<ColumnChunk<'_>> = arrays
            .iter()
            .zip(&specs)
            .map(|(a, s)| {
                let leaf = a.view().leaf(s).unwrap();
                ColumnChunk { mask: leaf.host_mask(), leaf, array: a }
            })
            .collect();
        let packed: Vec<PackedColumn<'_>> =
            specs.iter().zip(&chunks).map(|(spec, chunk)| PackedColumn { spec, chunk }).collect();
        if std::env::var("SHOW").is_ok() { println!("{:x?}", chunks.iter().map(|c| c.leaf.values as usize).collect::<Vec<_>>()); }
        let bytes = rows * columns * dtype.itemsize();
        let mut out = HostBuffer::uninitialised(bytes).unwrap();
        let mut copied = HostBuffer::uninitialised(bytes).unwrap();
        out.as_uninit_mut().fill(MaybeUninit::new(1));
        copied.as_uninit_mut().fill(MaybeUninit::new(1));
        let number = (20_000_000 / bytes).max(1);
        let mut times: Vec<Vec<f64>> = vec![vec![]; isas.len()];
        let mut ratios: Vec<Vec<f64>> = vec![vec![]; isas.len()];
        let mut base = vec![];
        for round in 0..rounds + 1 {
            for (i, isa) in isas.iter().enumerate() {
                let start = Instant::now();
                for _ in 0..number {
                    unsafe { out.as_ptr().copy_from_nonoverlapping(copied.as_ptr(), bytes) };
                }
                let plain = start.elapsed().as_secs_f64() / number as f64;
                let start = Instant::now();
                for _ in 0..number {
                    let rows = Rows::new(out.as_ptr(), columns * dtype.itemsize(), rows);
                    assert!(unsafe { pack_rows(*isa, 1, &packed, 0, rows) }.unwrap().is_ok());
                }
                let own = start.elapsed().as_secs_f64() / number as f64;
                if round > 0 {
                    times[i].push(own);
                    ratios[i].push(own / plain);
                    base.push(plain);
                }
            }
        }
        let base = median(base);
        println!(
            "{case:24} {:9.3} {:8.2}  {}",
            base * 1e3,
            bytes as f64 / base / 1e9,
            ratios.into_iter().map(|t| format!("{:.2}", median(t))).collect::<Vec<_>>().join("  ")
        );
    }
}
