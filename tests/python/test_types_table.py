"""Every row of the type table, both ways: nulls anywhere, slices at any offset, chunks, structs, copies, `explain`."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from support import address
from type_cases import CASES, Case, converted, each_case, each_case_with_nulls, read, same, slices


def storage(array: pa.Array) -> pa.Array:
    """The array without extension types: what pyarrow gives back where it does not know them."""
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if not pa.types.is_fixed_size_list(array.type):
        return array
    items = storage(array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size))
    mask = array.is_null() if array.null_count else None
    return pa.FixedSizeListArray.from_arrays(items, array.type.list_size, mask=mask)


@each_case_with_nulls
def test_values_and_the_error_that_names_the_first_null(case: Case, nulls: list[int]):
    for column, rows in slices(case, nulls):
        if None in rows:
            with pytest.raises(ad.NullError) as caught:
                converted(column, **case.options)
            assert caught.value.row == rows.index(None)
            assert "null" in caught.value.reason
            assert "validity()" in caught.value.remedy
            continue
        tensor = converted(column, **case.options)
        assert same(read(tensor), case.expected(rows, case.fill))
        if rows:
            assert tensor.copied == (not case.view)


@each_case_with_nulls
def test_nulls_are_filled(case: Case, nulls: list[int]):
    for column, rows in slices(case, nulls):
        tensor = converted(column, nulls=case.fill, **case.options)
        assert same(read(tensor), case.expected(rows, case.fill))
        if None in rows:
            assert tensor.copied
            with pytest.raises(ad.CopyError, match="copy of"):
                converted(column, nulls=case.fill, copy=False, **case.options)


@each_case_with_nulls
def test_nulls_are_kept_and_validity_tells_them(case: Case, nulls: list[int]):
    for column, rows in slices(case, nulls):
        expected = case.expected(rows, 0) if case.dtype != "float8_e8m0fnu" else None
        valid = np.array([row is not None for row in rows], bool)
        inner = np.shape(case.values[0]) if case.validity_inner is None else case.validity_inner
        found = np.from_dlpack(ad.validity(column))
        assert found.shape == (len(rows), *inner)
        assert same(found, np.broadcast_to(valid.reshape(-1, *[1] * len(inner)), found.shape))
        tensor = converted(column, nulls="keep", **case.options)
        assert same(read(tensor)[valid], case.expected([row for row in rows if row is not None], 0))
        if tensor.copied and expected is not None:
            assert same(read(tensor), expected)
        if rows:
            assert tensor.copied == (not case.view)
        copied = converted(column, nulls="keep", copy=True, **case.options)
        assert not rows or copied.copied
        if expected is not None:
            assert same(read(copied), expected)
        else:
            assert not np.ascontiguousarray(read(copied)).view("u1")[~valid].any()


@each_case
def test_views_share_memory_and_copies_do_not(case: Case):
    rows = case.rows([])
    column = case.build(rows)[3:]
    expected = case.expected(rows[3:], case.fill)
    if not case.view:
        with pytest.raises(ad.CopyError, match="bytes is needed") as caught:
            converted(column, copy=False, **case.options)
        assert "copy=None" in caught.value.remedy
    else:
        tensor = converted(column, copy=False, **case.options)
        assert not tensor.writable
        assert address(tensor) == address(converted(column, **case.options))
        # Row 3 of the whole column's tensor is where the slice begins.
        whole = converted(case.build(rows), copy=False, **case.options)
        assert (whole.strides, whole.dtype) == (tensor.strides, tensor.dtype)
        with pytest.raises(ad.CopyError, match="memory of its own"):
            converted(column, copy=False, writable=True, **case.options)
    for options in ({"copy": True}, {"writable": True}, {"copy": True, "writable": True}):
        tensor = converted(column, **options, **case.options)
        assert (tensor.copied, tensor.writable) == (True, True)
        assert same(read(tensor), expected)
        assert address(tensor) % (1 if case.decoded else 64) == 0
        if case.view:
            assert address(tensor) != address(converted(column, **case.options))


@each_case
def test_bytes_are_those_that_were_written(case: Case):
    """Each pass writes every element once; what is decoded is written once before."""
    rows = case.rows([])
    column = case.build(rows)
    elements = case.expected(rows, case.fill)
    written = elements.nbytes
    expected = elements.size * case.decoded
    if not case.view and (not case.decoded or "dtype" in case.options or case.dtype == "bool"):
        expected += written
    with ad.track_copies() as log:
        ad.to_tensor(column, **case.options)
    assert log.bytes == expected
    with ad.track_copies() as log:
        ad.to_tensor(column, copy=True, **case.options)
    # What was decoded is memory of its own already.
    assert log.bytes == (expected if case.decoded else written)


@each_case_with_nulls
def test_chunks_are_joined(case: Case, nulls: list[int]):
    rows = case.rows(nulls)
    column = case.build(rows)
    for parts in (
        [column[:4], column[4:]],
        [column[:0], column[:3], column[3:3], column[3:10], column[10:], column[:0]],
        [case.build(rows[:5]), case.build(rows[5:])],
        [column[2:2], column],
    ):
        if len(parts) == 3 and column.type != parts[1].type:
            continue
        chunked = pa.chunked_array(parts)
        tensor = converted(chunked, nulls=case.fill, **case.options)
        assert same(read(tensor), case.expected(rows, case.fill))
        valid = np.array([row is not None for row in rows], bool)
        found = np.from_dlpack(ad.validity(chunked)).reshape(len(rows), -1)
        assert same(found.all(axis=1), valid)
        assert same(found.any(axis=1), valid)
        if nulls:
            with pytest.raises(ad.NullError) as caught:
                converted(chunked, **case.options)
            assert caught.value.row == rows.index(None)
        filled = [part for part in parts if len(part)]
        if len(filled) > 1:
            with pytest.raises(ad.CopyError, match="bytes is needed"):
                converted(chunked, nulls="keep", copy=False, **case.options)
        elif case.view:
            assert not converted(chunked, nulls="keep", copy=False, **case.options).copied


@each_case
def test_no_rows_and_no_chunks(case: Case):
    data_type = case.build(case.rows([])).type
    empty = case.build(case.rows([]))[:0]
    for source in (empty, pa.chunked_array([], data_type), pa.chunked_array([empty, empty])):
        for nulls in ("error", "keep", case.fill):
            tensor = converted(source, copy=False, nulls=nulls, **case.options)
            assert (tensor.dtype, tensor.shape) == (case.dtype, (0, *np.shape(case.values[0])))
        inner = np.shape(case.values[0]) if case.validity_inner is None else case.validity_inner
        assert ad.validity(source).shape == (0, *inner)
        if case.returns:
            tensor = ad.to_tensor(source, **case.options)
            back = pa.array(tensor)
            assert len(back) == 0
            assert storage(back).type == storage(empty).type


@each_case_with_nulls
def test_nulls_of_a_struct_are_nulls_of_its_columns(case: Case, nulls: list[int]):
    own = case.rows(nulls)
    structs = [1, 2, 7]
    rows = [None if row in structs else pick for row, pick in enumerate(own)]
    other = pa.array(range(11), pa.int32())
    mask = pa.array([row in structs for row in range(11)])
    struct = pa.StructArray.from_arrays([other, case.build(own)], ["other", "x"], mask=mask)
    for part in (slice(None), slice(1, None), slice(2, 8), slice(8, 10), slice(3, 3)):
        options = {"columns": ["x"], **case.options}
        row = ad.explain(struct[part], nulls=case.fill, **options)["x"]
        with ad.track_copies() as log:
            tensor = ad.to_tensors(struct[part], nulls=case.fill, **options)["x"]
        assert row.error is None
        assert log.bytes == row.bytes or (row.how == "view or copy" and log.bytes == 0)
        assert same(read(tensor), case.expected(rows[part], case.fill))
        if None in rows[part]:
            with pytest.raises(ad.NullError) as caught:
                ad.to_tensors(struct[part], **options)
            assert (caught.value.column, caught.value.row) == ("x", rows[part].index(None))


@each_case
def test_a_tensor_returns_to_the_type_it_came_from(case: Case):
    rows = case.rows([])
    for column in (case.build(rows), case.build(rows)[3:10]):
        tensor = ad.to_tensor(column, **case.options)
        if not case.returns:
            # A plain column of the same values, which is that tensor again.
            options = {"dtype": case.dtype} if "complex" in case.dtype else {"decimal": case.options.get("decimal")}
            again = ad.to_tensor(pa.array(tensor), **options)
            assert same(read(again), read(tensor))
            continue
        with ad.track_copies() as log:
            back = pa.array(tensor)
            arrow = pa.array(ad.to_arrow(tensor, copy=False))
            again = ad.to_tensor(tensor, copy=False, **case.options)
        assert len(log) == 0
        assert pa.field(tensor).type == back.type
        assert storage(back).type == storage(column).type
        assert storage(back).equals(storage(column))
        back.validate(full=True)
        assert arrow.equals(back)
        assert address(again) == address(tensor)
        if isinstance(column.type, pa.ExtensionType):
            name = pa.field(tensor).metadata[b"ARROW:extension:name"].decode()
            assert name == column.type.extension_name
        copied = pa.array(ad.to_arrow(tensor, copy=True))
        assert storage(copied).equals(storage(column))


@each_case
def test_validity_on_the_way_back(case: Case):
    rows = case.rows([0, 1, 5, 10])
    column = case.build(rows)
    if not case.returns or case.validity_inner is not None or column.null_count == 0:
        return
    tensor = ad.to_tensor(column, nulls="keep", **case.options)
    valid = np.array([row is not None for row in rows])
    back = pa.array(ad.to_arrow(tensor, validity=valid))
    back.validate(full=True)
    assert storage(back).equals(storage(column))


def test_cases_are_told_apart_by_name():
    assert len({case.name for case in CASES}) == len(CASES)
