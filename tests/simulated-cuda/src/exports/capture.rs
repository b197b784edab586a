//! Captures, and the graphs that come of them.

use super::{Out, driver};
use crate::capture::{Graph, Mode};
use crate::error::Error;

driver! {
    /// Exchanges the capture mode of this thread, in which a context has to be current. The context may be lost.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) |call| {
        let wanted = Mode::from_number(mode.get()?)?;
        let thread = call.thread;
        if call.threads[thread].contexts.is_empty() {
            return Err(Error::INVALID_CONTEXT);
        }
        let old = std::mem::replace(&mut call.threads[thread].capture_mode, wanted);
        mode.set(old.number())
    }

    /// Begins to capture what is queued on a stream.
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) |call| {
        let stream = call.stream(stream)?;
        call.begin_capture(stream, Mode::from_number(mode)?)
    }

    /// Ends a capture, on the stream where it began.
    fn cuStreamEndCapture(stream: usize, graph: Out<usize>) |call| {
        let stream = call.stream(stream)?;
        graph.set(0)?;
        let captured = call.end_capture(stream)?;
        let handle = call.handle();
        call.graphs.insert(handle, captured);
        graph.set(handle)
    }

    /// Whether a stream is being captured.
    fn cuStreamIsCapturing(stream: usize, status: Out<u32>) |call| {
        let stream = call.stream(stream)?;
        let (found, _) = call.capture_status(stream)?;
        status.set(found as u32)
    }

    /// Whether a stream is being captured, and in which capture. The graph so far is not shown.
    fn cuStreamGetCaptureInfo_v2(
        stream: usize,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<usize>,
        dependencies: Out<usize>,
        count: Out<usize>,
    ) |call| {
        let stream = call.stream(stream)?;
        let (found, capture) = call.capture_status(stream)?;
        id.set_if_wanted(capture as u64 + 1);
        graph.set_if_wanted(0);
        dependencies.set_if_wanted(0);
        count.set_if_wanted(0);
        status.set(found as u32)
    }

    /// Destroys a graph.
    fn cuGraphDestroy(graph: usize) |call| {
        call.graphs.remove(&graph).map(|_| ()).ok_or(Error::INVALID_VALUE)
    }

    /// Makes a graph ready to launch.
    fn cuGraphInstantiateWithFlags(executable: Out<usize>, graph: usize, _flags: u64) |call| {
        call.context()?;
        let graph = call.graphs.get(&graph).cloned().ok_or(Error::INVALID_VALUE)?;
        let handle = call.handle();
        call.executables.insert(handle, graph);
        executable.set(handle)
    }

    /// Queues all that was captured, in the order in which it was.
    fn cuGraphLaunch(executable: usize, stream: usize) |call| {
        let stream = call.stream(stream)?;
        let Graph { actions } = call.executables.get(&executable).cloned().ok_or(Error::INVALID_VALUE)?;
        let thread = call.thread;
        for action in actions {
            call.submit(thread, stream, action, None)?;
        }
        Ok(())
    }

    /// Destroys what [`cuGraphInstantiateWithFlags`] made.
    fn cuGraphExecDestroy(executable: usize) |call| {
        call.executables.remove(&executable).map(|_| ()).ok_or(Error::INVALID_VALUE)
    }
}
