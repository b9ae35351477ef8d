"""Checks rows against the constraints of their table before a commit, as a Delta writer has to.

delta-rs checks only rows that it writes itself. The tables' data files are written by tasks, so their rows are checked
here, by the same SQL expressions that Delta keeps with the table. This module supports only the SQL that those
expressions use: comparisons with constants and columns, IN, IS [NOT] NULL, AND, OR and parentheses.
"""

import ast
import re
from collections.abc import Callable
from functools import cache, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from offsetlake.errors import CheckFailed
from offsetlake.lake.definitions import definition

_Predicate = Callable[[pa.ChunkedArray], pa.ChunkedArray]

_AS_PYTHON = {"AND": "and", "OR": "or", "IS": "is", "NOT": "not", "NULL": "None", "IN": "in", "=": "==", "<>": "!="}
_TOKEN = re.compile(r"'[^']*'|\w+|<>|<=|>=|[=<>(),]")
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}


def check_rows(table: str, rows: pa.Table) -> None:
    """Raise CheckFailed if a row violates a constraint of its table: as Delta, if the expression is not true."""
    for check in definition(table).checks:
        satisfied = evaluate(check["sql"], rows)
        if not pc.all(satisfied, skip_nulls=False, min_count=0).as_py():
            wrong = rows.filter(pc.invert(pc.fill_null(satisfied, fill_value=False)))
            columns = [name for name in rows.column_names if re.search(rf"\b{name}\b", check["sql"])]
            raise CheckFailed(
                f"{wrong.num_rows} rows for table {table} violate its constraint {check['name']} ({check['sql']}), "
                f"the first one with {wrong.select(columns).slice(0, 1).to_pylist()[0]}: nothing was committed; "
                "this is a defect of offsetlake, please report it"
            )


def evaluate(sql: str, rows: pa.Table) -> pa.ChunkedArray:
    """Return whether an expression is true of each row; null where SQL's three-valued logic leaves it unknown."""
    return _evaluate(_parsed(sql), rows)


@cache
def _parsed(sql: str) -> ast.expr:
    """Parse an expression as Python: its operators are replaced by Python's, which have the same precedence."""
    words = [_AS_PYTHON.get(word, word) for word in _TOKEN.findall(sql)]
    return ast.parse(" ".join(words), mode="eval").body


def _evaluate(node: ast.expr, rows: pa.Table) -> pa.ChunkedArray:
    match node:
        case ast.BoolOp(op, operands):
            combine = pc.and_kleene if isinstance(op, ast.And) else pc.or_kleene
            return reduce(combine, (_evaluate(operand, rows) for operand in operands))
        case ast.Compare(ast.Name(column), [ast.Is() | ast.IsNot() as op], [ast.Constant(None)]):
            return pc.is_null(rows[column]) if isinstance(op, ast.Is) else pc.is_valid(rows[column])
        case ast.Compare(ast.Name(column), [ast.In()], [values]):
            return _of_values(rows[column], _among(ast.literal_eval(values)))
        case ast.Compare(ast.Name(column), [op], [ast.Name(other)]):
            return _COMPARISONS[type(op)](rows[column], rows[other])
        case ast.Compare(ast.Name(column), [op], [ast.Constant(value)]):
            return _of_values(rows[column], lambda values: _COMPARISONS[type(op)](values, value))
    raise ValueError(f"the constraint expression {ast.unparse(node)!r} is not supported: extend {__name__}")


def _among(values: Any) -> _Predicate:
    known = pa.array(values if isinstance(values, tuple) else [values])
    return lambda column: pc.if_else(pc.is_null(column), None, pc.is_in(column, known))


def _of_values(column: pa.ChunkedArray, predicate: _Predicate) -> pa.ChunkedArray:
    """Apply a predicate to a column; to each value of a dictionary once."""
    if not pa.types.is_dictionary(column.type):
        return predicate(column)
    whole = column.unify_dictionaries().combine_chunks()
    return pa.chunked_array([predicate(whole.dictionary).take(whole.indices)])
