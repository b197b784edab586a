"""Arrays of nulls alone with an empty dictionary: a `Loader` takes them among arrays with another one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from support import numpy_of

WORDS = ["a", "b"]
NULLS, FIRST, SECOND = [None] * 4, ["a", None, "b", "a"], ["b", "b", None, "a"]
ORDERS = {
    "last": [FIRST, NULLS],
    "first": [NULLS, FIRST],
    "between": [FIRST, NULLS, SECOND],
    "around": [NULLS, NULLS, FIRST, NULLS, SECOND, NULLS],
    "alone": [NULLS, NULLS],
}
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "column": ({"w": "w"}, {"nulls": 7}),
    "matrix": ({"w": ["w", "v"]}, {"nulls": 7, "dtype": "int8", "dictionary": "codes"}),
    "padded": ({"w": ad.padded("l", value=9)}, {"nulls": 7}),
    "ragged": ({"w": ad.ragged("l")}, {"nulls": 7}),
}
# Of an empty dictionary, by the rule of docs/loader.md.
EMPTY = 16294208416658607535


def encoded(words: list[str | None], dictionary: list[str] = WORDS) -> pa.Array:
    """Codes of the dictionary, or of an empty one if all words are null."""
    codes = pa.array([None if word is None else dictionary.index(word) for word in words], pa.int8())
    return pa.DictionaryArray.from_arrays(codes, pa.array(dictionary if any(words) else [], pa.string()))


def batch_of(words: list[str | None], dictionary: list[str] = WORDS) -> pa.RecordBatch:
    """The words, lists of one of them, and codes without nulls."""
    column = encoded(words, dictionary)
    lists = pa.ListArray.from_arrays(pa.array(range(len(words) + 1), pa.int32()), column)
    others = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1], pa.int8()), pa.array(["c", "d"]))
    return pa.record_batch({"w": column, "l": lists, "v": others})


def table_of(order: list[list[str | None]]) -> pa.Table:
    return pa.Table.from_batches([batch_of(words) for words in order])


def rows_of(batch: dict[str, Any]) -> list[Any]:
    values = batch["w"]
    if isinstance(values, ad.Ragged):
        offsets, values = numpy_of(values.offsets), numpy_of(values.values)
        return [values[start:end].tolist() for start, end in pairwise(offsets)]
    return numpy_of(values).tolist()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("order", ORDERS)
class TestNullsAlone:
    @pytest.mark.parametrize("prefetch", [0, 2])
    @pytest.mark.parametrize("batch_size", [3, 24])
    def test_are_taken_as_to_tensors_takes_them(self, batch_size: int, prefetch: int, order: str, form: str):
        columns, options = FORMS[form]
        table = table_of(ORDERS[order])
        expected = rows_of(ad.to_tensors(table, columns=columns, **options))
        for shuffle_buffer in (0, 5, 24):
            found = [
                row
                for batch in ad.Loader(
                    table,
                    batch_size=batch_size,
                    columns=columns,
                    shuffle_buffer=shuffle_buffer,
                    seed=1,
                    prefetch=prefetch,
                    **options,
                )
                for row in rows_of(batch)
            ]
            if shuffle_buffer:
                assert sorted(found) == sorted(expected)
            else:
                assert found == expected

    @pytest.mark.parametrize("verify", ["replay", "all"])
    @pytest.mark.parametrize("shuffle_buffer", [0, 5])
    def test_are_resumed(self, shuffle_buffer: int, verify: str, order: str, form: str):
        columns, options = FORMS[form]
        for source in (
            {"source": table_of(ORDERS[order])},
            {"sources": [(batch_of(words), 4) for words in ORDERS[order]], "shuffle_shards": False},
        ):

            def loader(source: dict[str, Any] = source) -> ad.Loader:
                return ad.Loader(
                    **source,
                    batch_size=2,
                    columns=columns,
                    shuffle_buffer=shuffle_buffer,
                    seed=1,
                    verify=verify,
                    **options,
                )

            first = loader()
            states, batches = [], []
            for batch in first:
                batches.append(rows_of(batch))
                states.append(first.state_dict())
            for taken, state in enumerate(states, 1):
                again = loader()
                again.load_state_dict(state)
                left = [rows_of(batch) for batch in again]
                assert left == batches[taken:]


class TestDictionaries:
    def test_go_with_batches_once_they_are_known(self):
        table = table_of([NULLS, FIRST, NULLS])
        for column in (ad.group("w", validity="valid"), ad.ragged("l")):
            loader = ad.Loader(table, batch_size=4, columns={"w": column}, prefetch=0, nulls="keep")
            found = [getattr(batch["w"], "values", batch["w"]) for batch in loader]
            known = [pa.array(values.dictionary).to_pylist() for values in found]
            assert known[:2] == [[], WORDS]

    @pytest.mark.parametrize("form", FORMS)
    def test_that_differ_are_refused_beside_them(self, form: str):
        columns, options = FORMS[form]
        for first in ([], [NULLS]):
            batches = [batch_of(words) for words in [*first, FIRST, NULLS]]
            table = pa.Table.from_batches([*batches, batch_of(FIRST, ["b", "a"])])
            with pytest.raises(ad.ConversionError, match="different dictionaries"):
                list(ad.Loader(table, batch_size=4, columns=columns, **options))

    @pytest.mark.parametrize("form", FORMS)
    def test_that_change_after_them_are_refused(self, form: str):
        """In the next epoch, and after a resume where the first array is one of nulls alone."""
        columns, options = FORMS[form]

        def loader(words: list[str]) -> ad.Loader:
            batches = [batch_of(FIRST, words), batch_of(NULLS), batch_of(SECOND, words)]
            sources = [(batch, 4) for batch in batches]
            return ad.Loader(sources=sources, batch_size=4, columns=columns, shuffle_shards=False, **options)

        first = loader(WORDS)
        iterator = iter(first)
        next(iterator)
        state = first.state_dict()
        same, other = loader(WORDS), loader(["b", "a"])
        same.load_state_dict(state)
        assert len(list(same)) == 2
        other.load_state_dict(state)
        with pytest.raises(ad.ConversionError, match="other dictionaries than those of the state"):
            list(other)

    @pytest.mark.parametrize("lanes", [1, 2, 3])
    @pytest.mark.parametrize("readers", [1, 2])
    def test_are_those_of_all_lanes(self, readers: int, lanes: int):
        sources = [(batch_of(words), 4) for words in (NULLS, FIRST, NULLS, NULLS, SECOND, NULLS)]
        loader = ad.Loader(
            sources=sources,
            lanes=lanes,
            readers=readers if lanes > 1 else 1,
            batch_size=2,
            columns={"w": "w"},
            nulls=7,
            shuffle_buffer=3,
            seed=3,
        )
        for _ in range(3):
            rows = [row for batch in loader for row in rows_of(batch)]
            assert sorted(rows) == [0, 0, 0, 1, 1, 1, *[7] * 18]
            assert "dictionaries" in loader.state_dict()


class TestOneOfTwoColumns:
    """Columns of codes of which one has nulls alone for a while: the codes of the other one mean something already."""

    @staticmethod
    def batch(words: list[str], has_others: bool) -> tuple[pa.RecordBatch, int]:
        others = encoded(["a", "b"] if has_others else [None, None])
        return pa.record_batch({"w": encoded(["a", "b"], words), "v": others}), 2

    def loader(self, *batches: tuple[pa.RecordBatch, int], form: str) -> ad.Loader:
        columns = {"column": {"w": "w", "v": "v"}, "matrix": {"w": ["w", "v"]}}[form]
        options = {"columns": columns, "nulls": 7, "dictionary": "codes", "dtype": "int8"}
        return ad.Loader(sources=list(batches), batch_size=2, shuffle_shards=False, **options)

    @pytest.mark.parametrize("form", ["column", "matrix"])
    @pytest.mark.parametrize("before", [False, True])
    @pytest.mark.parametrize("after", [False, True])
    def test_that_changes_is_found_after_a_resume_and_in_the_next_epoch(self, after: bool, before: bool, form: str):
        first = self.loader(self.batch(WORDS, before), self.batch(WORDS, after), form=form)
        next(iter(first))
        state = first.state_dict()
        for words in (WORDS, ["b", "a"]):
            again = self.loader(self.batch(words, before), self.batch(words, after), form=form)
            again.load_state_dict(state)
            if words == WORDS:
                assert len(list(again)) == 1
                assert len(list(again)) == 2
                continue
            with pytest.raises(ad.ConversionError, match="other dictionaries than those of the state"):
                list(again)

    def test_that_changes_after_an_epoch_is_found(self):
        tables = [self.batch(WORDS, False)[0]]
        loader = ad.Loader(lambda: tables, batch_size=2, columns={"w": "w", "v": "v"}, nulls=7)
        assert len(list(loader)) == 1
        tables[0] = self.batch(["b", "a"], False)[0]
        with pytest.raises(ad.ConversionError, match="other dictionaries"):
            list(loader)

    def test_of_a_column_with_values_later_are_added(self):
        loader = self.loader(*[self.batch(WORDS, number == 2) for number in range(3)], form="column")
        for _ in range(2):
            for _ in loader:
                state = loader.state_dict()
                assert state["dictionaries_of_columns"][0] is not None
            assert None not in state["dictionaries_of_columns"]
            assert "dictionaries" in state

    def test_that_are_not_read_again_are_still_known(self):
        batches = [self.batch(WORDS, number == 0) for number in range(3)]
        first, again = self.loader(*batches, form="column"), self.loader(*batches, form="column")
        next(iter(first))
        state = first.state_dict()
        again.load_state_dict(state)
        next(iter(again))
        for key in ("dictionaries", "dictionaries_of_columns"):
            assert again.state_dict()[key] == state[key]

    @pytest.mark.parametrize("wrong", [1, "no", [True], [1.5], [-1], [2**64]])
    def test_of_a_state_that_is_wrong(self, wrong: Any):
        loader = self.loader(self.batch(WORDS, True), form="column")
        next(iter(loader))
        with pytest.raises(ValueError, match="dictionaries_of_columns"):
            loader.load_state_dict({**loader.state_dict(), "dictionaries_of_columns": wrong})


class TestStates:
    """Of loaders that refused any other dictionary after an empty one."""

    def test_of_an_empty_dictionary_are_loaded(self):
        loader = ad.Loader(table_of([NULLS, FIRST]), batch_size=2, columns={"w": "w"}, nulls=7)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        # They had digests of the same rows, and the hash of an empty dictionary.
        assert "dictionaries" not in state
        for dictionaries, is_loaded in ((EMPTY, True), (EMPTY + 1, False)):
            loader.load_state_dict({**state, "dictionaries": dictionaries})
            if is_loaded:
                assert [rows_of(batch) for batch in loader] == [[7, 7], [0, 7], [1, 0]]
            else:
                with pytest.raises(ad.ConversionError, match="dictionaries"):
                    list(loader)

    def test_have_equal_hashes_of_nulls_under_any_dictionary(self):
        """Behind the first array, whose dictionary starts the hash."""
        hashes = []
        for table in (table_of([FIRST, NULLS]), table_of([FIRST, NULLS]).combine_chunks()):
            loader = ad.Loader(table, batch_size=8, columns={"w": "w", "l": ad.padded("l")}, nulls=7)
            list(loader)
            hashes.append(loader.fingerprint()["hashes"])
        assert hashes[0] == hashes[1]

    def test_have_the_hash_of_the_dictionaries_in_any_order(self):
        found = set()
        for order in ("last", "first", "between", "around"):
            loader = ad.Loader(table_of(ORDERS[order]), batch_size=24, columns={"w": "w", "l": ad.ragged("l")}, nulls=7)
            list(loader)
            found.add(loader.fingerprint()["dictionaries"])
        assert len(found) == 1
