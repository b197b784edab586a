"""When a source fails, has the wrong parts or is let go early: what is raised, what is lost and what is closed."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from source_cases import TABLE, Iterable, batches, generated


class Hidden:
    """A source without attributes, which raises one exception whenever it is asked for one."""

    def __init__(self, error: Exception) -> None:
        self.__dict__["error"] = error

    def __getattr__(self, name: str) -> object:
        raise self.__dict__["error"]


class TestEnds:
    """A generator is closed with the loader or the stream that was made of it."""

    @staticmethod
    def closing(ended: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches() * 100
        except GeneratorExit:
            ended.append("closed")
            raise
        finally:
            ended.append("done")

    @pytest.mark.parametrize("prefetch", [0, 2])
    def test_of_a_loader(self, prefetch: int):
        ended: list[str] = []
        generator = self.closing(ended)
        iterator = iter(ad.Loader(generator, batch_size=5, prefetch=prefetch))
        next(iterator)
        iterator.close()
        assert ended == ["closed", "done"]
        assert list(generator) == []

    def test_of_a_stream(self):
        ended: list[str] = []
        generator = self.closing(ended)
        stream = ad.from_arrow(generator)
        next(stream)
        stream.close()
        assert ended == ["closed", "done"]

    def test_of_nobody_elses(self):
        ended: list[str] = []
        with pytest.raises(ad.ConversionError, match="no such column"):
            ad.to_tensor(self.closing(ended), columns=["x"])
        gc.collect()
        assert ended == ["closed", "done"]

    def test_a_function_leaves_the_callers_generator_open(self):
        ended: list[str] = []
        generator = self.closing(ended)
        with pytest.raises(ad.ConversionError, match="one item was taken from the iterator"):
            ad.to_tensor(generator, columns=["x"])
        assert ended == []
        assert next(generator) == batches()[1]

    def test_options_that_are_wrong_for_any_data_take_nothing(self):
        for group, options in (
            (ad.group("a", dtype="int8"), {"dtype": {"g": "int16"}}),
            (ad.group("a", nulls=0), {"nulls": {"g": 1}}),
            (ad.group("a", validity="g"), {}),
        ):
            items = iter(batches())
            with pytest.raises(ad.ConversionError) as caught:
                ad.to_tensors(items, columns={"g": group}, **options)
            assert "taken" not in str(caught.value)
            assert list(items) == batches()

    def test_a_generator_that_refuses_to_close_is_told(self, monkeypatch: pytest.MonkeyPatch):
        seen: list[Any] = []
        monkeypatch.setattr("sys.unraisablehook", seen.append)

        def stubborn() -> Iterator[pa.RecordBatch]:
            with contextlib.suppress(GeneratorExit):
                yield from batches()
            yield TABLE

        generator = stubborn()
        ad.from_arrow(generator).close()
        assert [type(one.exc_value) for one in seen] == [RuntimeError]
        seen.clear()


class Broken(Exception):
    """As a source may raise."""


class TestFailure:
    @staticmethod
    def raising(error: BaseException) -> Iterator[pa.RecordBatch]:
        yield batches()[0]
        raise error

    READERS: dict[str, Callable[[Any], Any]] = {  # noqa: RUF012
        "to_tensor": ad.to_tensor,
        "to_tensors": ad.to_tensors,
        "validity": ad.validity,
        "from_arrow": lambda source: list(ad.from_arrow(source)),
        "loader": lambda source: list(ad.Loader(source, batch_size=2)),
        "loader without a thread": lambda source: list(ad.Loader(source, batch_size=2, prefetch=0)),
    }

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    @pytest.mark.parametrize("kind", [Broken, KeyError, KeyboardInterrupt, ad.NullError, MemoryError])
    def test_what_an_iterator_raises_is_raised(self, read: Callable[[Any], Any], kind: type[BaseException]):
        error = kind("on purpose")
        with pytest.raises(kind, match="on purpose") as caught:
            read(self.raising(error))
        assert caught.value is error

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_at_its_first_item_too(self, read: Callable[[Any], Any]):
        def raising() -> Iterator[pa.RecordBatch]:
            raise Broken("at once")
            yield TABLE

        with pytest.raises(Broken, match="at once"):
            read(raising())

        class NotEvenThat:
            def __iter__(self) -> Iterator[object]:
                raise Broken("no iterator")

        with pytest.raises(Broken, match="no iterator"):
            read(NotEvenThat())

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_what_a_first_item_raises_is_raised_and_said_to_be_lost(self, read: Callable[[Any], Any]):
        class Refusing:
            def __arrow_c_stream__(self, requested_schema: object = None) -> object:
                raise Broken("not today")

        with pytest.raises(Broken, match="not today; one item was taken from the iterator"):
            read(iter([Refusing(), TABLE]))
        with pytest.raises(Broken, match=r"not today$"):
            read([Refusing(), TABLE])

    def test_one_exception_that_is_raised_again_says_it_once(self):
        for error, told in [(Broken("not today"), "not today"), (Broken("not", "today"), None)]:

            class Refusing:
                def __arrow_c_stream__(self, requested_schema: object = None, raised: Exception = error) -> object:
                    raise raised

            for _ in range(3):
                with pytest.raises(Broken) as caught:
                    ad.to_tensors(iter([Refusing()]))
                with pytest.raises(Broken):
                    ad.Loader(sources=[TABLE, Hidden(error)], batch_size=1)
            texts = [caught.value.args[0]] if told else caught.value.__notes__
            assert [text.count("one item was taken") for text in texts if "one item" in text] == [1]
            assert [text.count("sources[1]") for text in texts if "sources" in text] == [1]

    def test_batches_before_it_come_out(self):
        loader = ad.Loader(self.raising(Broken("late")), batch_size=3)
        iterator = iter(loader)
        assert [len(next(iterator)) for _ in range(2)] == [3, 3]
        with pytest.raises(Broken):
            next(iterator)
        assert next(iterator, None) is None

    def test_a_consumer_of_another_library_gets_the_text(self):
        with pytest.raises(OSError, match="Broken: on purpose"):
            pa.RecordBatchReader.from_stream(ad.from_arrow(self.raising(Broken("on purpose")))).read_all()

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    @pytest.mark.parametrize(
        ("items", "error", "text"),
        [
            ([TABLE, TABLE.select(["i"])], ad.ConversionError, r'item 2 .*\["i"\].*\["i", "f"\]'),
            ([TABLE, TABLE.select(["f", "i"])], ad.ConversionError, "item 2 .*give all items one schema"),
            ([TABLE, TABLE.rename_columns(["i", "g"])], ad.ConversionError, r'\["i", "g"\]'),
            (
                [TABLE, TABLE, TABLE.set_column(0, "i", TABLE["f"])],
                ad.ConversionError,
                'item 3 .*"i" of type Float64, and the first one Int64',
            ),
            ([TABLE, TABLE["i"]], ad.ConversionError, "item 2 .*type Int64"),
            ([TABLE, 3], TypeError, "item 2 of the iterator is no Arrow data but int"),
            ([TABLE, None], TypeError, "but NoneType"),
            ([TABLE, {"i": 3}], TypeError, "but dict"),
        ],
        ids=lambda x: type(x[-1]).__name__ if isinstance(x, list) else str(x),
    )
    def test_items_of_other_types(self, read: Callable[[Any], Any], items: list, error: type[Exception], text: str):
        for source in (items, iter(items)):
            with pytest.raises(error, match=text):
                read(source)

    def test_items_of_other_extension_types(self):
        def tensors(shape: list[int]) -> pa.Table:
            rows = np.arange(4.0).reshape(1, *shape)
            return pa.table({"t": pa.FixedShapeTensorArray.from_numpy_ndarray(rows)})

        assert ad.to_tensors([tensors([2, 2])] * 2)["t"].shape == (2, 2, 2)
        with pytest.raises(ad.ConversionError, match="item 2"):
            ad.to_tensors([tensors([2, 2]), tensors([4, 1])])

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_no_items(self, read: Callable[[Any], Any]):
        for source in ([], (), iter([]), Iterable(lambda: iter(()))):
            with pytest.raises(ValueError, match="has no items"):
                read(source)

    @pytest.mark.parametrize("read", READERS.values(), ids=READERS)
    def test_what_is_no_source(self, read: Callable[[Any], Any]):
        for wrong in (
            [1, 2],
            (1.5,),
            [[1, 2], [3, 4]],
            ["a"],
            [None],
            "text",
            b"bytes",
            {"x": TABLE},
            {1},
            range(3),
            5,
        ):
            with pytest.raises(TypeError, match=r"Arrow data"):
                read(wrong)

    def test_an_item_is_lost_only_to_an_iterator(self):
        for wrong, lost in (([1], False), (iter([1]), True), (range(1), False), (Iterable(lambda: iter([1])), False)):
            with pytest.raises(TypeError, match="first item is int") as caught:
                ad.to_tensor(wrong)
            assert ("one item was taken" in str(caught.value)) is lost

    def test_a_batch_with_its_fragment_is_no_item(self):
        def scanned() -> Iterator[Any]:
            return ds.dataset(TABLE).scanner(batch_size=2).scan_batches()

        for read, source in (
            (ad.to_tensor, scanned()),
            (ad.to_tensor, list(scanned())),
            (ad.to_tensor, [TABLE, *scanned()]),
            (ad.to_tensor, [scanned()]),
            (ad.explain, list(scanned())),
            (lambda source: list(ad.Loader(source, batch_size=2)), scanned),
            (lambda source: list(ad.Loader(source, batch_size=2)), scanned()),
        ):
            with pytest.raises(TypeError, match=r"pass scanner\.to_reader\(\)"):
                read(source)

    def test_a_tuple_among_items_is_no_source(self):
        for wrong, told in (
            ([(TABLE, TABLE)], r"first item is tuple; pass the data of each tuple alone, as \[item\[0\] for item"),
            (iter([(TABLE, TABLE)]), r"first item is tuple; one item was taken"),
            ([(1, TABLE)], r"\[item\[1\] for item"),
            ([TABLE, (TABLE, TABLE)], "item 2 of the iterator is no Arrow data but tuple"),
            ([(TABLE, None)], "it is a list of shards"),
        ):
            with pytest.raises(TypeError, match=told):
                ad.to_tensor(wrong)
        assert ad.to_tensor((TABLE, TABLE)).shape[0] == 2 * TABLE.num_rows

    def test_wrong_columns_of_an_iterator_are_told_after_one_item(self):
        taken: list[int] = []

        def parts() -> Iterator[pa.Table]:
            for number in range(9):
                taken.append(number)
                yield TABLE

        for read in (
            lambda source: ad.to_tensor(source, columns=["nothing"]),
            lambda source: ad.to_tensors(source, columns={"x": ["nothing"]}),
            lambda source: ad.validity(source, columns=["nothing"]),
            lambda source: ad.to_tensor(source, dtype={"nothing": "int8"}),
            lambda source: iter(ad.Loader(source, batch_size=2, columns=["nothing"])),
        ):
            taken.clear()
            with pytest.raises(ValueError, match=r'"nothing".*; one item was taken from the iterator'):
                read(parts())
            assert taken == [0]

    @pytest.mark.parametrize(
        "wrong", [{"order": "X"}, {"dtype": "float31"}, {"nulls": "drop"}, {"threads": 0}, {"columns": "i"}], ids=str
    )
    def test_wrong_options_take_nothing(self, wrong: dict):
        source = generated()
        with pytest.raises((ValueError, TypeError)) as caught:
            ad.to_tensor(source, **wrong)
        assert "taken" not in str(caught.value)
        assert next(source) == batches()[0]

    def test_a_schema_that_is_known_is_checked_without_a_word_of_items(self):
        with pytest.raises(ad.ConversionError, match="no such column") as caught:
            ad.to_tensor(batches(), columns=["x"])
        assert "taken" not in str(caught.value)

    def test_the_line_to_write_instead(self):
        class Plan:
            def collect(self) -> pa.Table:
                return TABLE

        for read in (ad.to_tensor, ad.to_tensors, ad.validity, ad.from_arrow, ad.to_ragged):
            with pytest.raises(TypeError, match=r"got Plan; call \.collect\(\) and pass its result"):
                read(Plan())


def of_nullability(nullable: bool, values: list[Any], shape: str) -> pa.Table:
    """A table of one column whose numbers, alone or in lists or structs, may be null or not."""
    number = pa.field("n", pa.int8(), nullable)
    columns: dict[str, tuple[pa.Field, list[Any]]] = {
        "numbers": (number.with_name("a"), values),
        "structs": (pa.field("a", pa.struct([number])), [{"n": value} for value in values]),
        "lists": (pa.field("a", pa.list_(number)), [[value] for value in values]),
        "fixed lists": (pa.field("a", pa.list_(number, 1)), [[value] for value in values]),
    }
    field, rows = columns[shape]
    return pa.table({"a": pa.array(rows, field.type)}, pa.schema([field]))


@pytest.mark.parametrize("shape", ["numbers", "structs", "lists", "fixed lists"])
class TestItemsThatDifferInNullability:
    @pytest.mark.parametrize("first", [True, False])
    def test_are_read_without_nulls(self, shape: str, first: bool):
        items = [of_nullability(first, [1, 2], shape), of_nullability(not first, [3], shape)]
        read = pa.table(ad.from_arrow(items))
        assert read.schema == items[0].schema
        assert read.to_pylist() == items[0].to_pylist() + items[1].to_pylist()
        if shape == "numbers":
            assert np.from_dlpack(ad.to_tensor(items)).ravel().tolist() == [1, 2, 3]
            batches = ad.Loader(items, batch_size=2, xp=np)
            assert np.concatenate([batch.ravel() for batch in batches]).tolist() == [1, 2, 3]

    def test_and_nulls_of_one_are_refused_by_name(self, shape: str):
        items = [
            of_nullability(False, [1, 2], shape),
            of_nullability(True, [3], shape),
            of_nullability(True, [None], shape),
        ]
        column = "a" if shape == "numbers" else "n"
        reason = "item 3 of the iterator has a null in a column that is not nullable in the first"
        text = f'{reason}.* make "{column}" nullable'
        with pytest.raises(ad.NullError, match=text) as raised:
            list(ad.from_arrow(iter(items)))
        assert raised.value.column == column
