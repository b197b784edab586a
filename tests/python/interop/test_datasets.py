"""Hugging Face datasets: pyarrow's tables under it go in and out without a copy; its own formats widen and copy."""

import pickle
from pathlib import Path

import arrow_dlpack as ad
import datasets
import frames
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from arrow_dlpack import huggingface
from datasets import Dataset
from frames import at, column, dunders, goes, refused, view
from helpers import address, flags

NUMBERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
UNKNOWN = {"bool8", "decimal32", "list view", "tensors"}
NONE = "no such type there"
TO = {
    **{name: view() for name in frames.COLUMNS},
    **{name: refused(ValueError, "does not have a datasets dtype", NONE) for name in UNKNOWN},
    "dictionary": frames.copy(note="decoded"),
    "number dictionary": frames.copy(note="decoded"),
}


def dataset_of(ours: object) -> Dataset:
    """Columns go there in tables, and tables by pyarrow."""
    field = pa.field(ours).with_name("x")
    return Dataset(pa.table(ad.from_arrow(pa.table([pa.array(ours)], schema=pa.schema([field])))))


def out(dataset: Dataset) -> pa.ChunkedArray:
    return dataset.data.table["x"]


@pytest.mark.parametrize("name", TO)
def test_columns_go_there(cell, name: str):
    goes(cell, name, TO[name], dataset_of, out)


class TestToDatasets:
    def test_batches_and_streams(self, cell):
        source = pa.table({"x": pa.chunked_array([[1, 2], [3]])})
        for data in (ad.from_arrow(source), ad.from_arrow(source.to_batches()[0])):
            # It asks for a table of pyarrow's by its type, and calls no dunder.
            with pytest.raises(TypeError, match=r"Expected a pyarrow\.Table"):
                Dataset(data)
        cell("to", "stream", "refused", "as it is; `Dataset(pyarrow.table(x))`")
        dataset = Dataset(pa.table(ad.from_arrow(source)))
        assert [at(chunk) for chunk in out(dataset).chunks] == [at(chunk) for chunk in source["x"].chunks]
        cell("to", "stream", "view", "by `pyarrow.table`")
        dataset = Dataset(pa.table(ad.from_arrow(source.to_batches()[0])))
        assert at(out(dataset).chunk(0)) == at(source["x"].chunk(0))
        cell("to", "batch", "view", "by `pyarrow.table`")
        cell("to", "device", "absent")

    def test_tensors(self, cell):
        source = np.arange(6.0).reshape(3, 2)
        with pytest.raises(ValueError, match="fixed_shape_tensor"):
            dataset_of(ad.to_arrow(source))
        dataset = dataset_of(ad.to_arrow(source, type=pa.list_(pa.float64(), 2)))
        assert dataset.features["x"] == datasets.List(datasets.Value("float64"), length=2)
        assert at(out(dataset).chunk(0)) == source.ctypes.data
        cell("to", "fixed-size lists", "view", "as a plain list: `to_arrow(x, type=pyarrow.list_(...))`")
        assert dataset_of(ad.to_arrow(np.array(5.0)))["x"][:] == [5]
        cell("to", "0-d", "view", "as one row")

    def test_strides(self, cell):
        for part, case in ((slice(None, None, 2), "strided"), (slice(None, None, -1), "negative strides")):
            source = np.arange(6.0)[part]
            dataset = dataset_of(ad.to_arrow(source))
            assert dataset["x"][:] == source.tolist()
            assert at(out(dataset).chunk(0)) != source.ctypes.data
            cell("to", case, "copy")

    def test_complex_numbers_and_small_floats(self, cell):
        frames.complex_numbers(cell, "view", lambda ours: dataset_of(ad.to_arrow(ours)), out, back=out)
        frames.small_floats_pass(cell, "view", lambda ours: Dataset(pa.table(ours)).data.table)


def made() -> Dataset:
    return Dataset(pa.table({"x": [1, 2, 3], "f": [1.5, None, 2.5]}))


class TestFromDatasets:
    def test_which_dunders(self, cell):
        dataset = made()
        for x in (dataset, dataset.data, dataset["x"]):
            assert dunders(x) == set()
        assert np.from_dlpack(ad.to_tensors(dataset, columns=["x"])["x"]).tolist() == [1, 2, 3]
        cell("from", "stream", "view", "the dataset itself, 1,024 rows at a time; chosen rows are copied")
        assert dunders(dataset.data.table) == {"stream"}
        cell("from", "device", "absent")

    @pytest.mark.parametrize("name", NUMBERS)
    def test_numbers(self, cell, name: str):
        source = column(name)
        taken = Dataset(pa.table({"x": source})).with_format("arrow")[1:3]
        tensor = ad.to_tensors(taken, copy=False)["x"]
        # Its own formats make int64 and float32 of every number.
        assert tensor.dtype == name
        assert np.from_dlpack(tensor).tolist() == [2, 3]
        assert address(tensor) == at(source[1:])
        for case in ("numbers", "batch"):
            cell("from", case, "view", 'by `with_format("arrow")`')

    def test_its_own_formats_lose_values(self, cell):
        source = [2**53 + 1, None]
        dataset = Dataset(pa.table({"x": source}))
        theirs = dataset.with_format("numpy")[:]["x"]
        assert theirs.dtype == np.float32
        cell("from", "nulls", "wrong", 'its format "numpy" makes float32 of int64 with a null')
        tensor = ad.to_tensors(dataset.with_format("arrow")[:], nulls=-1)["x"]
        assert np.from_dlpack(tensor).tolist() == [2**53 + 1, -1]
        cell("from", "nulls", "copy", 'by `with_format("arrow")`')
        kept = ad.to_tensors(dataset.with_format("arrow")[:], nulls="keep", copy=False)["x"]
        assert address(kept) == at(out(dataset).chunk(0))
        cell("from", "nulls", "view", 'by `with_format("arrow")`, under `nulls="keep"`')

    def test_chosen_rows(self, cell):
        chosen = made().select([2, 0])
        # The table under it knows nothing of the choice.
        assert np.from_dlpack(ad.to_tensors(chosen.data.table, columns=["x"])["x"]).tolist() == [1, 2, 3]
        taken = ad.to_tensors(chosen.with_format("arrow")[:], columns=["x"])["x"]
        assert np.from_dlpack(taken).tolist() == [3, 1]
        cell("from", "strided", "copy", "chosen rows are gathered by datasets")

    def test_batches_of_an_iteration(self, cell):
        dataset = made().with_format("arrow")
        parts = [ad.to_tensors(part, columns=["x"], copy=False)["x"] for part in dataset.iter(2)]
        assert [np.from_dlpack(part).tolist() for part in parts] == [[1, 2], [3]]
        start = at(out(dataset).chunk(0))
        assert [address(part) for part in parts] == [start, start + 16]
        cell("from", "stream", "view", 'by `with_format("arrow").iter(batch_size)`')

    def test_files_are_mapped(self, cell, tmp_path: Path):
        made().save_to_disk(str(tmp_path))
        loaded = datasets.load_from_disk(str(tmp_path))
        assert type(loaded.data).__name__ == "MemoryMappedTable"
        tensor = ad.to_tensors(loaded.data.table, columns=["x"], copy=False)["x"]
        assert np.from_dlpack(tensor).tolist() == [1, 2, 3]
        assert not tensor.writable
        assert flags(tensor) & 1
        cell("from", "read-only", "view", "files are mapped into memory, which is read-only")

    def test_types(self, cell):
        flags_ = Dataset(pa.table({"x": column("bool")})).with_format("arrow")[:]
        assert np.from_dlpack(ad.to_tensors(flags_)["x"]).tolist() == [True, False, True]
        cell("from", "bool", "copy")
        for name in ("date32", "timestamp", "timestamp tz", "duration", "time64"):
            source = column(name)
            tensor = ad.to_tensors(Dataset(pa.table({"x": source})).with_format("arrow")[:], copy=False)["x"]
            assert address(tensor) == at(source)
        cell("from", "temporal", "view", 'by `with_format("arrow")`')
        lists = datasets.Features({"m": datasets.List(datasets.Value("float32"), length=2)})
        rows = Dataset.from_dict({"m": [[1.0, 2.0]]}, features=lists)
        assert np.from_dlpack(ad.to_tensors(rows.data.table, copy=False)["m"]).tolist() == [[1, 2]]
        cell("from", "fixed-size lists", "view", "`List` with a length")
        frames.decimals_come(cell, out(Dataset(pa.table({"x": column("decimal128")}))))

    @pytest.mark.parametrize("name", ["string", "list"])
    def test_lists_and_strings(self, cell, name: str):
        frames.ragged_come(cell, frames.COLUMNS[name][0], out(Dataset(pa.table({"x": column(name)}))))

    def test_size_0(self, cell):
        assert ad.to_tensors(made().with_format("arrow")[:0])["x"].shape == (0,)
        cell("from", "size 0", "view")

    def test_in_a_map(self):
        def double(part: pa.Table) -> pa.Table:
            x = np.from_dlpack(ad.to_tensors(part, columns=["x"])["x"])
            return pa.table({"y": pa.array(ad.to_arrow(x * 2))})

        mapped = made().with_format("arrow").map(double, batched=True, remove_columns=["x", "f"])
        assert mapped[:]["y"].to_pylist() == [2, 4, 6]


ROWS = 2500


def numbered() -> Dataset:
    return Dataset(pa.table({"x": range(ROWS), "f": [row / 4 for row in range(ROWS)]}))


def rows_of(source: object) -> list[int]:
    """The first column, by a function and by two epochs of a loader, which all are the same."""
    found = np.from_dlpack(ad.to_tensor(source))[:, 0].astype(int).tolist()
    loader = ad.Loader(source, batch_size=700)
    for _ in range(2):
        epoch = [row for batch in loader for row in np.from_dlpack(batch)[:, 0].astype(int).tolist()]
        assert epoch == found
    return found


class TestAsASource:
    """Data sets are read as streams, in the order that they have."""

    def test_map_style(self):
        dataset = numbered()
        for source in (dataset, dataset.with_format("arrow")):
            assert rows_of(source) == [*range(ROWS)]
            assert len(ad.Loader(source, batch_size=700)) == 4
            assert ad.validity(source).shape == (ROWS, 2)
            assert ad.from_arrow(source).column_names == ["x", "f"]

    def test_chosen_and_shuffled_rows(self):
        dataset = numbered()
        chosen = [2499, 3, 7, 1024, 0]
        assert rows_of(dataset.select(chosen)) == chosen
        assert len(ad.Loader(dataset.select(chosen), batch_size=2)) == 3
        assert rows_of(dataset.select(range(5, 9))) == [5, 6, 7, 8]
        shuffled = dataset.shuffle(seed=3)
        assert rows_of(shuffled) == shuffled["x"][:] != [*range(ROWS)]
        even = dataset.filter(lambda rows: [x % 2 == 0 for x in rows["x"]], batched=True)
        assert rows_of(even) == [*range(0, ROWS, 2)]
        assert rows_of(dataset.select([])) == []
        assert ad.to_tensor(dataset.select([])).shape == (0, 2)

    def test_columns_of_a_format_stay_chosen(self):
        dataset = numbered()
        for chosen in (dataset.with_format("arrow", columns=["f"]), dataset.with_format(None, columns=["f"])):
            assert list(ad.to_tensors(chosen)) == ["f"]
            assert list(ad.to_tensors(chosen.select([]))) == ["f"]

    def test_streams(self):
        stream = numbered().to_iterable_dataset(num_shards=3).with_format("arrow")
        assert rows_of(stream) == [*range(ROWS)]
        with pytest.raises(TypeError, match="how many rows"):
            len(ad.Loader(stream, batch_size=700))
        shuffled = stream.shuffle(seed=3, buffer_size=100)
        expected = [row for part in shuffled.iter(1000) for row in part["x"].to_pylist()]
        assert rows_of(shuffled) == expected != [*range(ROWS)]
        assert rows_of(stream.skip(5).take(3)) == [5, 6, 7]

    @pytest.mark.parametrize("form", ["numpy", "pandas"])
    def test_other_formats_are_told_what_to_write(self, form: str):
        for read in (ad.to_tensor, ad.to_tensors, lambda source: iter(ad.Loader(source, batch_size=2))):
            with pytest.raises(TypeError, match=rf'format \'{form}\'.*pass \.with_format\("arrow"\)'):
                read(numbered().with_format(form))

    def test_a_stream_of_dicts_is_told_what_to_write(self):
        stream = numbered().to_iterable_dataset()
        with pytest.raises(TypeError, match=r'gives dict.*pass \.with_format\("arrow"\)') as caught:
            ad.to_tensor(stream)
        assert "taken" not in str(caught.value)

    def test_columns_are_checked_when_a_loader_is_made(self):
        dataset = numbered()
        streamed = dataset.to_iterable_dataset().with_format("arrow")
        for source in (dataset, dataset.with_format("arrow"), dataset.select([0, 1]), streamed):
            with pytest.raises(ad.ConversionError, match="no such column"):
                ad.Loader(source, batch_size=2, columns=["nothing"])

    def test_other_columns_than_those_that_are_named_are_not_gathered(self, monkeypatch: pytest.MonkeyPatch):
        gathered: list[list[str]] = []
        gather = datasets.table.Table.fast_gather

        def noting(table: datasets.table.Table, rows: object) -> pa.Table:
            found = gather(table, rows)
            gathered.append(found.column_names)
            return found

        monkeypatch.setattr(datasets.table.Table, "fast_gather", noting)
        shuffled = Dataset(pa.table({"x": range(100), "f": [0.5] * 100, "text": ["a"] * 100})).shuffle(seed=3)
        assert ad.to_tensors(shuffled, columns={"x": ["x", "f"], "t": ad.arrow("text")})["x"].shape == (100, 2)
        assert gathered == [["x", "f", "text"]]
        gathered.clear()
        found = rows_in(ad.Loader(shuffled, batch_size=30, columns=["x"]))
        sources = huggingface.shards(shuffled, 3)
        assert rows_in(ad.Loader(sources=sources, batch_size=30, columns=["x"])) == found
        assert np.from_dlpack(ad.to_tensors(shuffled, columns=["x"])["x"]).tolist() == found
        assert gathered == [["x"]] * 5
        assert found == shuffled["x"][:]

    @pytest.mark.parametrize("columns", [["f", "x"], ["x"], None])
    def test_columns_that_are_named_are_those_of_the_whole(self, columns: list[str] | None):
        dataset = Dataset(pa.table({"x": range(30), "text": ["a"] * 30, "f": [row / 4 for row in range(30)]}))
        of_format = dataset.with_format("arrow", columns=["f", "x"])
        chosen = dataset.select([5, 3, 9]).remove_columns("text")
        for source in (dataset.remove_columns("text"), of_format, of_format.shuffle(seed=2), chosen):
            whole = pa.table(ad.from_arrow(source))
            expected = [np.from_dlpack(batch).tolist() for batch in ad.Loader(whole, batch_size=7, columns=columns)]
            found = [np.from_dlpack(batch).tolist() for batch in ad.Loader(source, batch_size=7, columns=columns)]
            assert found == expected
            loader = ad.Loader(source, batch_size=7, columns=columns)
            next(iter(loader))
            assert loader.state_dict()["columns"] == whole.column_names

    def test_a_transform_is_not_passed_over(self):
        dataset = numbered()
        dataset.set_transform(lambda rows: {"x": [0 for _ in rows["x"]]})
        with pytest.raises(TypeError, match="custom"):
            ad.to_tensor(dataset)

    def test_a_data_set_of_pandas_has_its_index_left_out(self):
        frame = pd.DataFrame({"x": [1, 2, 3]}, index=[5, 3, 9])
        dataset = Dataset.from_pandas(frame)
        assert dataset.column_names == ["x", "__index_level_0__"]
        assert list(ad.to_tensors(dataset)) == ["x"]


class TestShards:
    """Shards of a data set are its consecutive parts."""

    def test_of_a_dataset(self):
        for dataset in (numbered(), numbered().shuffle(seed=3), numbered().select([5, 3, 9, 1])):
            for count in (1, 3, 4):
                sources = huggingface.shards(dataset, count)
                assert [len(part) for part, _ in sources] == [rows for _, rows in sources]
                assert rows_in(ad.Loader(sources=sources, batch_size=700)) == dataset["x"][:]
            lanes = ad.Loader(sources=pickle.loads(pickle.dumps(sources)), lanes=2, batch_size=1, readers=2)
            assert sorted(rows_in(lanes)) == sorted(dataset["x"][:])

    def test_are_those_of_its_files(self, tmp_path: Path):
        assert len(huggingface.shards(numbered())) == 1
        numbered().save_to_disk(str(tmp_path), num_shards=3)
        loaded = datasets.load_from_disk(str(tmp_path))
        sources = huggingface.shards(loaded)
        assert [rows for _, rows in sources] == [834, 833, 833]
        assert rows_in(ad.Loader(sources=sources, batch_size=700)) == [*range(ROWS)]
        # A selection names all files.
        assert [rows for _, rows in huggingface.shards(loaded.select([5, 3]))] == [1, 1]

    def test_of_a_stream(self):
        stream = numbered().to_iterable_dataset(num_shards=4)
        for dataset in (stream, stream.with_format("arrow"), stream.shuffle(seed=1, buffer_size=10)):
            for count in (None, 1, 2, 4):
                sources = huggingface.shards(dataset, count)
                assert len(sources) == (count or 4)
                found = rows_in(ad.Loader(sources=sources, batch_size=700))
                assert sorted(found) == [*range(ROWS)]
        assert rows_in(ad.Loader(sources=huggingface.shards(stream), batch_size=700)) == [*range(ROWS)]
        with pytest.raises(ValueError, match="4 shards, and num_shards is 5"):
            huggingface.shards(stream, 5)

    @pytest.mark.parametrize("name", ["skip", "take", "interleaved", "interleaved to the end", "repeated", "numbered"])
    def test_of_a_stream_that_has_other_rows_within_shards(self, name: str):
        """The document names such streams, and says to pass them as the source."""
        first, second = (
            Dataset(pa.table({"x": range(start, start + rows)})).to_iterable_dataset(num_shards=2)
            for start, rows in ((0, 100), (1000, 10))
        )
        stream = {
            "skip": lambda: first.skip(5),
            "take": lambda: first.take(5),
            "interleaved": lambda: datasets.interleave_datasets([first, second]),
            "interleaved to the end": lambda: datasets.interleave_datasets(
                [first, second], stopping_strategy="all_exhausted"
            ),
            "repeated": lambda: first.repeat(2),
            "numbered": lambda: first.map(lambda row, index: {"x": row["x"] + index}, with_indices=True),
        }[name]()
        rows = [row["x"] for row in stream]
        assert rows_in(ad.Loader(stream.with_format("arrow"), batch_size=7)) == rows
        assert rows_in(ad.Loader(sources=huggingface.shards(stream, 1), batch_size=7)) == rows
        found = rows_in(ad.Loader(sources=huggingface.shards(stream), batch_size=7))
        assert (sorted(found) == sorted(rows)) == (name == "repeated")
        assert found != rows

    def test_what_has_none(self):
        with pytest.raises(TypeError, match=r"not DatasetDict; pass one of its splits"):
            huggingface.shards(datasets.DatasetDict({"train": numbered()}))
        for other in (pa.table({"x": [1]}), 3):
            with pytest.raises(TypeError, match="Hugging Face"):
                huggingface.shards(other)
        with pytest.raises(ValueError, match="1 or more"):
            huggingface.shards(numbered(), 0)
        with pytest.raises(ValueError, match="2 rows, and num_shards is 3"):
            huggingface.shards(numbered().select([5, 3]), 3)


def rows_in(loader: ad.Loader) -> list[int]:
    return [row for batch in loader for row in np.from_dlpack(batch)[:, 0].astype(int).tolist()]
