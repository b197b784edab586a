//! The virtual clock: what takes time on it, and what overlaps.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls a C library")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

mod support;

use std::sync::mpsc;
use std::time::Duration;

use cudarc::driver::sys::{CUresult, CUstream};
use simulated_cuda::api::{Lasted, Simulator};
use support::{Run, call, copy, device, enter, event, fill, finish, ok, on_clock, open, pinned, read, stream, wait};

const MIB: usize = 1 << 20;
const MILLISECOND: u64 = 1_000_000;

/// What streams did, in the order in which it was queued.
fn done(simulator: &Simulator) -> Vec<Lasted> {
    simulator.timeline().into_iter().filter(|lasted| lasted.whose.contains("stream")).collect()
}

fn overlap(one: &Lasted, other: &Lasted) -> bool {
    one.start < other.end && other.start < one.end
}

fn now(run: &Run) -> u64 {
    run.simulator.virtual_time().unwrap()
}

#[test]
fn work_is_not_ready_until_its_time() {
    on_clock("work_is_not_ready_until_its_time", |run| {
        open(0);
        let (on, done) = (stream(false), event());
        run.simulator.busy(on as usize, MILLISECOND);
        ok!(cuEventRecord(done, on));
        let queued = now(run);
        let mut asked = 0;
        while call!(cuEventQuery(done)) == CUresult::CUDA_ERROR_NOT_READY {
            assert_eq!(call!(cuStreamQuery(on)), CUresult::CUDA_ERROR_NOT_READY);
            run.simulator.sleep(10_000);
            asked += 1;
        }
        ok!(cuStreamQuery(on));
        // The record took a part of the time.
        assert!((90..=100).contains(&asked), "{asked}");
        assert!((queued + 990_000..queued + 1_020_000).contains(&now(run)));
        let waits = run.simulator.timeline().iter().filter(|lasted| lasted.what == "wait").count();
        assert_eq!(waits, 0);
    });
}

#[test]
fn a_wait_of_the_host_lasts_as_long_as_the_work() {
    on_clock("a_wait_of_the_host_lasts_as_long_as_the_work", |run| {
        open(0);
        let on = stream(false);
        for _ in 0..3 {
            run.simulator.busy(on as usize, MILLISECOND);
        }
        let queued = now(run);
        finish(on);
        assert!((queued + 3 * MILLISECOND..queued + 3 * MILLISECOND + 1_000).contains(&now(run)));
        let waits: Vec<Lasted> = run.simulator.timeline().into_iter().filter(|lasted| lasted.what == "wait").collect();
        assert_eq!(waits.len(), 1);
        assert!(waits[0].whose.starts_with("host thread") && waits[0].end == now(run));
        assert_eq!(run.simulator.forced_moves(), 0);
    });
}

#[test]
fn copies_in_copies_out_and_kernels_overlap_on_different_streams() {
    on_clock("copies_in_copies_out_and_kernels_overlap_on_different_streams", |run| {
        open(0);
        let streams = [stream(false), stream(false), stream(false)];
        let (to, from) = (device(8 * MIB), device(8 * MIB));
        let (source, back) = (pinned(8 * MIB), pinned(8 * MIB));
        fill(from, 3, 8 * MIB, streams[1]);
        finish(streams[1]);
        copy(to, source as u64, 8 * MIB, streams[0]);
        copy(back as u64, from, 8 * MIB, streams[1]);
        run.simulator.busy(streams[2] as usize, MILLISECOND / 10);
        let [_, into, out, kernel] = done(&run.simulator).try_into().unwrap();
        assert_eq!(
            (into.what.as_str(), into.bytes, kernel.what.as_str()),
            ("copy", 8 * MIB as u64, "kernel of a test")
        );
        assert!(overlap(&into, &out) && overlap(&into, &kernel) && overlap(&out, &kernel));
        // 55.6 GB/s in each direction.
        for copied in [&into, &out] {
            assert!((150_000..154_000).contains(&(copied.end - copied.start)), "{copied:?}");
        }
        streams.into_iter().for_each(finish);
        assert_eq!(read(back), 3);
    });
}

#[test]
fn two_copies_of_one_direction_take_turns_and_what_waits_holds_up_nobody() {
    on_clock("two_copies_of_one_direction_take_turns_and_what_waits_holds_up_nobody", |run| {
        open(0);
        let (first, second, third) = (stream(false), stream(false), stream(false));
        let (to, source) = (device(3 * MIB), pinned(3 * MIB));
        run.simulator.busy(first as usize, 10 * MILLISECOND);
        for (index, on) in [first, second, third].into_iter().enumerate() {
            copy(to + (index * MIB) as u64, source as u64 + (index * MIB) as u64, MIB, on);
        }
        let [busy, behind, early, next] = done(&run.simulator).try_into().unwrap();
        assert!(behind.start == busy.end && early.end < busy.end);
        assert!(!overlap(&early, &next) && next.start >= early.end && next.end < busy.end);
        finish(first);
        finish(second);
        finish(third);
    });
}

#[test]
fn a_wait_for_an_event_and_the_legacy_stream_end_the_overlap() {
    on_clock("a_wait_for_an_event_and_the_legacy_stream_end_the_overlap", |run| {
        open(0);
        let (first, second, blocking) = (stream(false), stream(false), stream(true));
        let (to, source) = (device(2 * MIB), pinned(MIB));
        run.simulator.busy(first as usize, MILLISECOND);
        wait(second, first);
        copy(to, source as u64, MIB, second);
        run.simulator.busy(blocking as usize, MILLISECOND);
        // On the legacy default stream, which waits for the blocking one.
        copy(to + MIB as u64, source as u64, MIB, std::ptr::null_mut());
        let [busy, after, other, legacy] = done(&run.simulator).try_into().unwrap();
        assert_eq!(after.start, busy.end);
        assert_eq!(other.start, busy.end, "kernels run one at a time");
        assert_eq!(legacy.start, other.end + 1_000);
        finish(second);
        ok!(cuCtxSynchronize());
    });
}

#[test]
fn calls_cost_what_the_machine_says() {
    on_clock("calls_cost_what_the_machine_says", |run| {
        open(0);
        let start = now(run);
        assert!(start >= 250 * MILLISECOND, "the driver and a context: {start}");
        pinned(64 * MIB);
        let of_pinning = now(run) - start;
        assert!((7 * MILLISECOND..8 * MILLISECOND).contains(&of_pinning), "{of_pinning}");
        let on = stream(false);
        let before = now(run);
        let pointer = support::device_in(on, 64 * MIB);
        let grown = now(run) - before;
        ok!(cuMemFreeAsync(pointer, on));
        let before = now(run);
        let again = support::device_in(on, 64 * MIB);
        assert!(grown > 500_000 && now(run) - before < 1_000, "the pool keeps its memory: {grown}");
        ok!(cuMemFreeAsync(again, on));
        finish(on);
        let long: Vec<String> = run.simulator.timeline().into_iter().map(|lasted| lasted.what).collect();
        assert!(long.contains(&"cuMemHostAlloc".to_owned()) && long.contains(&"cuInit".to_owned()), "{long:?}");
    });
}

#[test]
fn host_threads_work_side_by_side() {
    on_clock("host_threads_work_side_by_side", |run| {
        let context = open(0) as usize;
        let start = now(run);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    enter(context);
                    for _ in 0..10 {
                        run.simulator.host_copied(10_000_000);
                    }
                });
            }
        });
        let took = now(run) - start;
        assert!((10 * MILLISECOND..10 * MILLISECOND + 10_000).contains(&took), "{took}");
        assert_eq!(run.simulator.forced_moves(), 0);
    });
}

#[test]
fn the_clock_stands_while_a_thread_computes() {
    on_clock("the_clock_stands_while_a_thread_computes", |run| {
        let context = open(0) as usize;
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                enter(context);
                sender.send(()).unwrap();
                run.simulator.sleep(5 * MILLISECOND);
                assert!(now(run) >= 255 * MILLISECOND);
            });
            receiver.recv().unwrap();
            let begun = std::time::Instant::now();
            let start = now(run);
            while begun.elapsed() < Duration::from_millis(100) {
                assert!(now(run) < start + 5 * MILLISECOND, "nobody waits for it but the other");
            }
        });
        assert_eq!(run.simulator.forced_moves(), 0);
    });
}

#[test]
fn a_gate_takes_until_it_is_opened() {
    on_clock("a_gate_takes_until_it_is_opened", |run| {
        open(0);
        let on = stream(false);
        let gate = run.simulator.gate(on as usize);
        run.simulator.busy(on as usize, MILLISECOND);
        run.simulator.sleep(7 * MILLISECOND);
        assert_eq!(call!(cuStreamQuery(on)), CUresult::CUDA_ERROR_NOT_READY);
        let opened = now(run);
        gate.open();
        assert_eq!(call!(cuStreamQuery(on)), CUresult::CUDA_ERROR_NOT_READY);
        finish(on);
        assert!((opened + MILLISECOND..opened + MILLISECOND + 1_000).contains(&now(run)));
    });
}

#[test]
fn a_host_function_runs_in_its_turn() {
    on_clock("a_host_function_runs_in_its_turn", |run| {
        unsafe extern "C" fn note(sender: *mut std::ffi::c_void) {
            // SAFETY: the sender that the test made for this call.
            unsafe { Box::from_raw(sender.cast::<mpsc::Sender<()>>()) }.send(()).unwrap();
        }
        open(0);
        let on = stream(false);
        let (sender, receiver) = mpsc::channel::<()>();
        run.simulator.busy(on as usize, 2 * MILLISECOND);
        let queued = now(run);
        ok!(cuLaunchHostFunc(on, Some(note), Box::into_raw(Box::new(sender)).cast()));
        receiver.recv().unwrap();
        assert!(now(run) >= queued + 2 * MILLISECOND);
        finish(on as CUstream);
    });
}

#[test]
fn a_race_is_one_whenever_the_work_is_done() {
    support::proves_on_clock("a_race_is_one_whenever_the_work_is_done", "race: ", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(MIB), pinned(MIB));
        fill(data, 7, MIB, first);
        // Long after: the order of time is no order.
        run.simulator.sleep(100 * MILLISECOND);
        if !run.fault {
            wait(second, first);
        }
        copy(back as u64, data, MIB, second);
        finish(second);
        assert_eq!(read(back), 7);
    });
}
