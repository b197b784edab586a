"""Lance: what is written is copied into its files, and what was read is viewed; it has a bfloat16 of its own."""

from pathlib import Path

import arrow_dlpack as ad
import frames
import lance
import numpy as np
import pyarrow as pa
import pytest
from frames import at, column, copy, dunders, goes, refused
from helpers import address, flags, script
from lance.arrow import bfloat16_array

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
NONE = "32-bit decimals, list views and rows of size 0"
TO = {
    **{name: copy() for name in frames.COLUMNS if name != "misaligned"},
    "string view": copy(note="string views become strings"),
    **{name: refused(OSError, "Unsupported data type", NONE) for name in ("decimal32", "list view")},
    "lists of size 0": refused(OSError, "dimension must be a positive integer", NONE),
}


def write(table: object, folder: Path) -> lance.LanceDataset:
    return lance.write_dataset(pa.RecordBatchReader.from_stream(table), str(folder / "x.lance"))


def table_of(ours: object) -> ad.ArrayStream:
    field = pa.field(ours).with_name("x")
    return ad.from_arrow(pa.table([pa.array(ours)], schema=pa.schema([field])))


def out(dataset: lance.LanceDataset) -> pa.ChunkedArray:
    return dataset.to_table()["x"]


@pytest.mark.parametrize("name", TO)
def test_columns_go_there(cell, tmp_path: Path, name: str):
    goes(cell, name, TO[name], lambda ours: write(table_of(ours), tmp_path), out)


class TestToLance:
    def test_its_own_types_only(self, cell, tmp_path: Path):
        """It asks for types of pyarrow's and others by name, and calls no dunder."""
        table = pa.table({"x": [1, 2]})
        path = str(tmp_path / "x.lance")
        with pytest.raises(TypeError, match="Unknown data type"):
            lance.write_dataset(ad.from_arrow(table.to_batches()[0]), path)
        cell("to", "batch", "refused", "as it is; pass `pyarrow.table(batch)`")
        # A stream is taken for an iterable of pyarrow's batches.
        with pytest.raises(ValueError, match="Must provide schema"):
            lance.write_dataset(ad.from_arrow(table), path)
        with pytest.raises(OSError, match="Expected RecordBatch"):
            lance.write_dataset(ad.from_arrow(table), path, schema=table.schema)
        cell("to", "stream", "refused", "as it is; pass `pyarrow.RecordBatchReader.from_stream(stream)`")
        assert lance.write_dataset(pa.table(ad.from_arrow(table.to_batches()[0])), path).count_rows() == 2
        cell("to", "batch", "copy", "by `pyarrow.table`")
        cell("to", "device", "absent")

    def test_streams(self, cell, tmp_path: Path):
        source = pa.table({"x": pa.chunked_array([[1, 2], [3]])})
        assert out(write(ad.from_arrow(source), tmp_path)).to_pylist() == [1, 2, 3]
        cell("to", "stream", "copy", "by `pyarrow.RecordBatchReader.from_stream`")

    def test_misaligned_memory_panics(self, cell, tmp_path: Path):
        code = f"""
import lance, pyarrow as pa, arrow_dlpack as ad
source = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(b"\\0" * 17).slice(1)])
lance.write_dataset(pa.table({{"x": pa.array(DATA)}}), {str(tmp_path / "x.lance")!r})
"""
        for data in ("source", "ad.from_arrow(source)"):
            done = script(code.replace("DATA", data))
            assert done.returncode != 0
            assert "not aligned" in done.stderr
        # Through a tensor it is realigned.
        done = script(code.replace("DATA", "ad.to_tensor(source)"))
        assert done.returncode == 0, done.stderr
        cell("to", "misaligned", "wrong", "a panic; `to_tensor` makes aligned memory of it")

    def test_tensors(self, cell, tmp_path: Path):
        source = np.arange(6, dtype="float32").reshape(3, 2)
        dataset = write(table_of(ad.to_arrow(source)), tmp_path)
        assert dataset.schema.field("x").type == pa.fixed_shape_tensor(pa.float32(), [2])
        np.testing.assert_array_equal(np.from_dlpack(ad.to_tensors(dataset.to_table())["x"]), source)
        cell("to", "fixed-size lists", "copy")

    def test_complex_numbers(self, cell, tmp_path: Path):
        frames.complex_numbers(cell, "copy", lambda ours: write(table_of(ad.to_arrow(ours)), tmp_path), out, back=out)

    def test_small_floats(self, cell, tmp_path: Path):
        folders = iter(tmp_path / name for name in frames.SMALL)
        frames.small_floats_pass(cell, "copy", lambda ours: write(ours, next(folders)).to_table())

    def test_its_bfloat16(self, cell, tmp_path: Path):
        theirs = bfloat16_array([1.5, -2.5])
        tensor = ad.to_tensor(theirs, copy=False)
        assert (tensor.dtype, tensor.shape) == ("bfloat16", (2,))
        assert address(tensor) == at(theirs)
        back = pa.array(tensor)
        assert back.type == theirs.type
        assert back.to_pylist() == theirs.to_pylist()
        assert at(back) == at(theirs)
        cell("from", "bfloat16", "view", "`lance.bfloat16`")
        cell("to", "bfloat16", "view", "`lance.bfloat16`, of a tensor that came from it")
        written = write(pa.table({"x": theirs}), tmp_path)
        assert ad.to_tensors(written.to_table(), copy=False)["x"].dtype == "bfloat16"


class TestFromLance:
    def made(self, folder: Path) -> lance.LanceDataset:
        return write(pa.table({"x": [1, 2, 3], "f": [1.5, None, 2.5]}), folder)

    def test_which_dunders(self, cell, tmp_path: Path):
        dataset = self.made(tmp_path)
        for x in (dataset, dataset.scanner(), dataset.get_fragments()[0]):
            assert dunders(x) == set()
            # They are read by their methods, batch by batch.
            assert np.from_dlpack(ad.to_tensors(x, columns=["x"])["x"]).tolist() == [1, 2, 3]
        assert dunders(dataset.schema) == {"schema"}
        assert ad.explain(dataset.schema)["f"].dtype == "float64"
        cell("from", "stream", "view", "a dataset, a scanner or a fragment, read batch by batch")
        cell("from", "device", "absent")

    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, tmp_path: Path, name: str):
        read = write(pa.table({"x": column(name)}), tmp_path).to_table()
        tensor = ad.to_tensors(read, copy=False)["x"]
        assert tensor.dtype == name
        assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
        assert address(tensor) == at(read["x"].chunk(0))
        assert not tensor.writable
        assert flags(tensor) & 1
        for case in ("numbers", "batch", "read-only"):
            cell("from", case, "view", "of what was read")

    def test_batches(self, cell, tmp_path: Path):
        dataset = self.made(tmp_path)
        (batch,) = ad.from_arrow(dataset.scanner(columns=["x"]).to_reader())
        assert np.from_dlpack(ad.to_tensor(batch["x"], copy=False)).tolist() == [1, 2, 3]
        cell("from", "stream", "view", "by `dataset.scanner().to_reader()`")
        taken = ad.to_tensors(dataset.take([2, 0], columns=["x"]), copy=False)["x"]
        assert np.from_dlpack(taken).tolist() == [3, 1]

    def test_nulls_and_bools(self, cell, tmp_path: Path):
        read = self.made(tmp_path / "nulls").to_table()
        with pytest.raises(ad.NullError, match='column "f", row 1'):
            ad.to_tensors(read)
        assert np.from_dlpack(ad.to_tensors(read, nulls=0)["f"]).tolist() == [1.5, 0, 2.5]
        cell("from", "nulls", "copy")
        kept = ad.to_tensors(read, nulls="keep", copy=False)["f"]
        assert address(kept) == at(read["f"].chunk(0))
        cell("from", "nulls", "view", 'under `nulls="keep"`')
        read = write(pa.table({"x": column("bool")}), tmp_path / "bools").to_table()
        assert np.from_dlpack(ad.to_tensors(read)["x"]).tolist() == [True, False, True]
        cell("from", "bool", "copy")

    @pytest.mark.parametrize("name", [name for name, (case, _) in frames.COLUMNS.items() if case == "temporal"])
    def test_temporal(self, cell, tmp_path: Path, name: str):
        read = write(pa.table({"x": column(name)}), tmp_path).to_table()
        tensor = ad.to_tensors(read, copy=False)["x"]
        assert pa.array(tensor).equals(column(name))
        assert address(tensor) == at(read["x"].chunk(0))
        cell("from", "temporal", "view")

    def test_lists_decimals_and_dictionaries(self, cell, tmp_path: Path):
        for name in ("fixed-size list", "tensors"):
            read = write(pa.table({"x": column(name)}), tmp_path / name).to_table()
            tensor = ad.to_tensors(read, copy=False)["x"]
            assert address(tensor) == at(read["x"].chunk(0))
        cell("from", "fixed-size lists", "view")
        frames.decimals_come(cell, out(write(pa.table({"x": column("decimal128")}), tmp_path / "decimals")))
        theirs = out(write(pa.table({"x": column("dictionary")}), tmp_path / "dictionary"))
        frames.codes_come(cell, theirs, "int32", [0, 1, 0])

    @pytest.mark.parametrize("name", ["string", "list"])
    def test_lists_and_strings(self, cell, tmp_path: Path, name: str):
        frames.ragged_come(cell, frames.COLUMNS[name][0], out(write(pa.table({"x": column(name)}), tmp_path)))

    def test_size_0(self, cell, tmp_path: Path):
        read = write(pa.table({"x": [1]})[:0], tmp_path).to_table()
        assert ad.to_tensors(read)["x"].shape == (0,)
        cell("from", "size 0", "view")
