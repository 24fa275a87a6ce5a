"""Paired comparison of models, methods or baselines that are scored on the same images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype

from captum_concepts.pictures.gallery import TextFigure, figure_of
from captum_concepts.support.checks import as_list, check_choice, to_numpy
from captum_concepts.support.files import list_some
from captum_concepts.support.running import warn_user
from captum_concepts.tcav.p_values import ADJUSTMENTS, adjust_p_values
from quantus_concepts.functional.arguments import Numbers
from quantus_concepts.functional.statistics.differences import Difference, cgim_difference, paired_difference
from quantus_concepts.metrics.concepts.names import (
    CGIM,
    CGIM_CORRELATION,
    CLASS_CONCEPTS,
    CLASS_IMPORTANCE,
    DENSITY,
)
from quantus_concepts.results.summary import ANY_METHOD, OF_ITEMS

if TYPE_CHECKING:
    from quantus_concepts.results.summary import Evaluation

#: Columns of what is compared, the first with several values.
COMPARED = ("model", "method")
#: Columns that are no variant of a metric.
FACTS = frozenset({"image", "label", "class", "predicted", "value", "reason", "item"})
#: Importances whose correlation with what people say of classes depends neither on the zero nor on the unit of values.
WITHOUT_ZERO = ("weight", "value")
#: Why a row has no p-value, "" if it has one; no column of the result.
_WHY = "_why"
FEW_CLASSES = "fewer than three classes that both models predict correctly, or no truth is left without one of them"
NUMBERS = ["value_a", "value_b", "difference", "low", "high", "n", "undefined", "p", "p_adjusted"]


def compare(
    a: pd.DataFrame | Evaluation,
    b: pd.DataFrame | Evaluation | None = None,
    *,
    reference: str | None = None,
    by: str | None = None,
    names: Sequence[str] | None = None,
    clusters: str | Numbers | None = "class",
    adjust: str = "holm",
) -> pd.DataFrame:
    """Compare models, methods or baselines that are scored on the same images, image by image.

    Two numbers from the same images must not be compared by whether their intervals overlap: what makes an image easy
    or hard for both cancels in the paired difference, which is often far more precise than either number.

    Parameters
    ----------
    a : DataFrame or Evaluation
        Scores of images: `score_concepts` or `score_contrasts` with ``per_image=True``, or any table with the columns
        ``metric``, ``image`` and ``value``, in which other columns are variants of the metric, unless they have one
        value for each image; or the result of `evaluate`, whose methods are compared. Its metrics that do not depend
        on the method (`CEM` on images, for instance) are compared with those of another evaluation only, in one row of
        method "any method". `CGIM` has no score of an image and is left out with a warning: pass tables of
        `score_concepts` with ``per_image=True`` and ``class_concepts``.
    b : DataFrame or Evaluation, optional
        Scores of the same images by another model or method. All rows must match. If None the models (or methods) of
        `a` are compared with each other; metrics and variants that only one of the two has are left out.
    reference : str, optional
        One model or method of `a` with which all others are compared, in place of all pairs.
    by : str, optional
        The column of what is compared: "baseline" for instance, with ``reference=""``, compares maps with their
        baselines. By default "model" or "method".
    names : sequence of str, optional
        What the columns ``a`` and ``b`` call the two tables. By default their models or methods, or "a" and "b".
    clusters : str, array_like or None
        Images that depend on each other: "class" takes the true classes (column ``label`` or ``class``), another text
        the column of this name, an array (N,) the cluster of image 0, 1, ...; with None all images are independent.
    adjust : str
        Correction of the p-values for the number of rows: "holm", "bh" or "none" (`functional.adjust_p_values`). It
        counts all rows of the result: select the rows of `a` that answer your question first.

    Returns
    -------
    DataFrame
        A row for each metric, variant and pair: ``metric``, the columns of its variant, the names ``a`` and ``b``,
        ``value_a`` and ``value_b``, means over the ``n`` images in which both are defined, ``difference``, the first
        less the second, with its 95 % interval ``low`` to ``high``, ``undefined`` images, ``p`` and ``p_adjusted``.
        Intervals and p-values are those of `functional.paired_difference`. If the table has the rows "class importance"
        and "class concepts", there are rows of "CGIM" and "CGIM correlation" by `functional.cgim_difference`.

    Raises
    ------
    TypeError
        If `a` or `b` is neither a table nor an evaluation.
    ValueError
        If rows of the two do not match (the message says how many), images have other labels, a row is there twice,
        there are no two models or methods, a cluster or column is missing, or `adjust` is unknown.

    Warns
    -----
    UserWarning
        If metrics are left out, or a row has no interval and no p-value, with the reason: all images are in one
        cluster, for instance.

    Notes
    -----
    Tables of several seeds need a column ``seed``: there is then a row for each. For one interval over images and seeds
    take `functional.seeds_interval` of the differences (S, N),
    ``table.pivot(index="seed", columns="image", values="value")`` of the first less that of the second.

    Scores by weight, value and contribution depend on what a value of 0 and a unit of it mean (column ``convention``):
    where two models differ in it, as margins and probabilities do, the row is left out with a warning. Of CGIM by value
    and by weight the correlation over classes is compared still, which does not depend on it.

    Rows of "class importance", which `score_concepts` gives, have ``label`` (the number of a class), ``item`` (a
    concept) and ``explanation``; rows of "class concepts" the same without an explanation. NaN marks a class without a
    correctly predicted image.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts import compare
    >>> scores = {"ours": [1, 1, 0, 1, 1, 1], "theirs": [1, 0, 0, 1, 0, 1]}
    >>> images = {"metric": "CEM", "image": range(6), "label": [0, 0, 1, 1, 2, 2]}
    >>> table = pd.concat(
    ...     pd.DataFrame({"model": name, **images, "value": scores[name]}) for name in scores
    ... )
    >>> result = compare(table)
    >>> result[["a", "b", "difference", "low", "high", "p"]].round(2).values.tolist()
    [['ours', 'theirs', 0.33, -0.73, 1.0, 0.38]]
    """
    check_choice("adjust", adjust, ADJUSTMENTS)
    first, left_out = _as_table("a", a, clusters)
    if names is not None and (b is None or len(as_list("names", names, "two texts")) != 2):
        raise ValueError(f"Expected argument `names` to name the two tables `a` and `b` but got {names!r}.")
    if b is not None:
        if reference is not None:
            raise ValueError("Expected either argument `b` or `reference` but got both.")
        second, left_out_of_b = _as_table("b", b, clusters)
        left_out |= left_out_of_b
        pair = _two_tables(first, second, by)
        pairs = [pair if names is None else replace(pair, a=str(names[0]), b=str(names[1]))]
    else:
        pairs = list(_pairs_of_table(first, by, reference))
    rows, conventions = list[dict[str, Any]](), dict[str, None]()
    for pair in pairs:
        *tables, other = of_one_convention(pair.first, pair.second)
        conventions |= dict.fromkeys(other)
        if all(map(len, tables)):
            pair = replace(pair, first=tables[0], second=tables[1])
            rows += _compare_pair(pair, clusters, strict=b is not None)
    if conventions:
        warn_user(
            f"Left out of the comparison, since importance is counted from different zeros: {', '.join(conventions)}. "
            "Compare by 'effect', which does not depend on them."
        )
    if left_out:
        warn_user(
            "Left out of the comparison, without one score for each image: "
            f"{', '.join(sorted(left_out))}. For CGIM pass tables of "
            "`score_concepts(..., class_concepts=..., per_image=True)`."
        )
    if not rows:
        raise ValueError("Expected metrics and variants that both sides have but there is none.")
    for why, those in pd.DataFrame(rows).groupby(_WHY, sort=False):
        if why:
            warn_user(f"No interval and no p-value of {', '.join(those['metric'].unique())}: {why}.")
    result = pd.DataFrame(rows).drop(columns=_WHY)
    result["p_adjusted"] = adjust_p_values(result["p"].to_numpy(), adjust)
    variants = [name for name in result if name not in ("metric", "a", "b", *NUMBERS)]
    filled = [name for name in variants if (result[name].notna() & (result[name].astype(str) != "")).any()]
    result[filled] = result[filled].apply(lambda column: column if is_numeric_dtype(column) else column.fillna(""))
    return result[["metric", *filled, "a", "b", *NUMBERS]]


@dataclass(frozen=True)
class _Pair:
    """Two tables that are compared, with the names of what they hold."""

    a: str
    b: str
    first: pd.DataFrame
    second: pd.DataFrame


def _as_table(argument: str, scores: Any, clusters: Any) -> tuple[pd.DataFrame, set[str]]:
    """Return scores as a table with a column `value`, and the names of metrics that are left out, or raise."""
    if isinstance(scores, pd.DataFrame):
        if not {"metric", "image"} <= {*scores} or {"value", "score"}.isdisjoint(scores) or scores.empty:
            raise ValueError(
                f"Expected argument `{argument}` to have rows, and columns `metric`, `image` and `value`, but got "
                f"{len(scores)} rows with columns {[str(column) for column in scores]}. A comparison needs the scores "
                "of the images: `score_concepts(..., per_image=True)`."
            )
        table = scores if "value" in scores else scores.rename(columns={"score": "value"})
        # No model changes the density.
        return table[table["metric"] != DENSITY].reset_index(drop=True), set()
    if not (hasattr(scores, "results") and hasattr(scores, "summary")):
        raise TypeError(
            f"Expected argument `{argument}` to be a DataFrame or what `evaluate` returns but got "
            f"{type(scores).__name__}."
        )
    results = scores.results.to_dict() if isinstance(scores.results, pd.DataFrame) else scores.results
    rows = [
        (method, metric, call, values)
        for method, of_method in results.items()
        for metric, of_metric in of_method.items()
        for call, values in (of_metric.items() if isinstance(of_metric, Mapping) else [("", of_metric)])
    ]
    lengths = Counter(np.size(values) for *_, values in rows)
    is_array = clusters is not None and not isinstance(clusters, str)
    n_images = len(to_numpy(clusters).ravel()) if is_array else lengths.most_common(1)[0][0]
    summary = scores.summary
    of_items = summary.attrs.get(OF_ITEMS, ())
    calls = summary["call"] if "call" in summary else pd.Series("", summary.index)
    summarised = {*zip(summary["method"], summary["metric"], calls, strict=True)}
    of_any = {(metric, call) for method, metric, call in summarised if method == ANY_METHOD}
    parts, left_out = {}, set()
    for method, metric, call, values in rows:
        if np.shape(values) != (n_images,) or metric in of_items:
            left_out.add(metric)
            continue
        # The results repeat scores that do not depend on the method for each; the summary has them once.
        is_of_any = (metric, call) in of_any and (method, metric, call) not in summarised
        of_method = ANY_METHOD if is_of_any else method
        fields = {"method": of_method, "metric": metric, "call": call}
        parts[of_method, metric, call] = pd.DataFrame({**fields, "image": range(n_images), "value": values})
    if not parts:
        raise ValueError(f"Expected the evaluation to have metrics with a score for each of {n_images} images.")
    return pd.concat(parts.values(), ignore_index=True), left_out


def of_one_convention(first: pd.DataFrame, second: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return two tables without the scores whose importance is counted from different zeros, and the names of these."""
    if "convention" not in first or "convention" not in second:
        return first, second, []
    keys = [name for name in ("metric", "explanation", "model") if name in first and name in second]
    own, theirs = (table[[*keys, "convention"]].fillna("").drop_duplicates() for table in (first, second))
    both = own.merge(theirs, on=keys)
    other = both[both["convention_x"] != both["convention_y"]]
    other = other[(other["metric"] != CLASS_IMPORTANCE) | ~other["explanation"].isin(WITHOUT_ZERO)]
    left_out = pd.MultiIndex.from_frame(other[keys])
    kept = (table[~pd.MultiIndex.from_frame(table[keys].fillna("")).isin(left_out)] for table in (first, second))
    names = other["metric"].where(other["metric"] != CLASS_IMPORTANCE, CGIM)
    rows = zip(names, other["explanation"], other["convention_x"], other["convention_y"], strict=True)
    return (*kept, [f"{metric} by {kind} ({a or 'unknown'}, {b or 'unknown'})" for metric, kind, a, b in rows])


def _names(table: pd.DataFrame, column: str) -> list[Any]:
    """Return what is compared by a column: neither the truth about classes nor scores of any method."""
    names = table.loc[table["metric"] != CLASS_CONCEPTS, column].unique()
    return [name for name in names if name != ANY_METHOD]


def _without_names(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a table without its one model or method; scores of any method keep this name."""
    of_any = table[column] == ANY_METHOD
    return table.assign(**{column: np.where(of_any, ANY_METHOD, "")}) if of_any.any() else table.drop(columns=column)


def _two_tables(first: pd.DataFrame, second: pd.DataFrame, by: str | None) -> _Pair:
    """Return two tables with the names of what each holds; "a" and "b" where that is not one thing."""
    candidates = [name for name in ([by] if by else COMPARED) if name in first and name in second]
    for column in candidates:
        names = [_names(table, column) for table in (first, second)]
        if all(len(of_table) == 1 for of_table in names) and names[0] != names[1]:
            tables = (_without_names(table, column) for table in (first, second))
            return _Pair(str(names[0][0]), str(names[1][0]), *tables)
    if by:
        raise ValueError(f"Expected argument `by` to be a column with one name in each of the tables but got {by!r}.")
    return _Pair("a", "b", first, second)


def _pairs_of_table(table: pd.DataFrame, by: str | None, reference: Any) -> Iterator[_Pair]:
    """Yield the pairs of one table."""
    several = [name for name in ([by] if by else COMPARED) if name in table and len(_names(table, name)) > 1]
    if not several:
        expected = f"a column {by!r}" if by else "a column `model` or `method`"
        raise ValueError(
            f"Expected argument `a` to have {expected} with at least two names. Pass another table as `b`, or the "
            "column of what is compared as `by`."
        )
    column = several[0]
    names = _names(table, column)
    if reference is not None and reference not in names:
        raise ValueError(f"Expected argument `reference` to be one of {names} but got {reference!r}.")
    pairs = combinations(names, 2) if reference is None else ((name, reference) for name in names if name != reference)
    for a, b in pairs:
        chosen = (table[(table[column] == name) | (table["metric"] == CLASS_CONCEPTS)] for name in (a, b))
        yield _Pair(str(a), str(b), *(rows.drop(columns=column) for rows in chosen))


def _compare_pair(pair: _Pair, clusters: Any, *, strict: bool) -> Iterator[dict[str, Any]]:
    """Yield the rows of one pair."""
    facts = FACTS | _image_facts(pair.first)
    variants = [name for name in pair.first if name in pair.second and name not in facts]
    of_classes = [table["metric"].isin((CLASS_IMPORTANCE, CLASS_CONCEPTS)) for table in (pair.first, pair.second)]
    first, second = pair.first[~of_classes[0]], pair.second[~of_classes[1]]
    if len(first) or len(second):
        matched = _match(pair, first, second, variants, strict)
        groups = _clusters_of(matched, clusters)
        for _, rows in matched.groupby(variants, sort=False, dropna=False):
            members = None if groups is None else groups[rows.index]
            result = paired_difference(rows["value_a"].to_numpy(), rows["value_b"].to_numpy(), members)
            why = _undecided(rows, members) if np.isnan(result.p) else ""
            yield {**rows[variants].iloc[0].to_dict(), **_numbers(pair, result), _WHY: why}
    if of_classes[0].any() or of_classes[1].any():
        yield from _compare_classes(pair, pair.first[of_classes[0]], pair.second[of_classes[1]])


def _undecided(rows: pd.DataFrame, clusters: np.ndarray | None) -> str:
    """Return why the scores of images, in rows, have no p-value."""
    paired = (rows["value_a"] - rows["value_b"]).notna().to_numpy()
    if paired.sum() < 2:
        return "fewer than two images have both scores"
    if clusters is not None and len({*clusters[paired].tolist()}) < 2:
        return "all images are in one cluster; pass `clusters=None` if they do not depend on each other"
    return "all images have the same difference, so that its spread is unknown"


def _image_facts(table: pd.DataFrame) -> set[str]:
    """Return the columns that differ between images but not within one: the name of its file, its bird."""
    others = [name for name in table if name not in FACTS and name != "metric"]
    by_image = table.groupby("image")[others].nunique(dropna=False).max()
    return {name for name in others if by_image[name] == 1 and table[name].nunique(dropna=False) > 1}


def _numbers(pair: _Pair, result: Difference) -> dict[str, Any]:
    fields = result._asdict()
    return {"a": pair.a, "b": pair.b, "value_a": fields.pop("first"), "value_b": fields.pop("second"), **fields}


def _match(pair: _Pair, first: pd.DataFrame, second: pd.DataFrame, variants: list[str], strict: bool) -> pd.DataFrame:
    """Return the rows of both tables side by side, or raise where they do not match."""
    keys = [*variants, "image"]
    for name, table in ((pair.a, first), (pair.b, second)):
        if doubled := int(table.duplicated(keys).sum()):
            raise ValueError(
                f"Expected one row of {name!r} for each image, metric and variant but {doubled} rows are there again. "
                "Which column tells them apart? It must be in both tables."
            )
    if not strict:
        shared = first[variants].drop_duplicates().merge(second[variants].drop_duplicates())
        first, second = first.merge(shared), second.merge(shared)
    kept = [name for name in second if name in (*keys, "value", "label")]
    both = first.merge(second[kept], on=keys, how="outer", suffixes=("_a", "_b"), indicator=True)
    alone = both[both["_merge"] != "both"]
    if len(alone):
        only_a = int((alone["_merge"] == "left_only").sum())
        example = ", ".join(f"{name} {alone.iloc[0][name]}" for name in keys if not _is_empty(alone.iloc[0][name]))
        raise ValueError(
            f"Expected scores of the same images, metrics and variants but {only_a} rows of {pair.a!r} and "
            f"{len(alone) - only_a} rows of {pair.b!r} have no counterpart: {example}. Score the same images, and "
            "select the rows that both tables have."
        )
    if "label_a" in both:
        different = both["label_a"] != both["label_b"]
        if different.any():
            n_images = both.loc[different, "image"].nunique()
            raise ValueError(
                f"Expected scores of the same images but {n_images} of {both['image'].nunique()} images have other "
                "classes in the second table. Are they in the same order?"
            )
        both = both.rename(columns={"label_a": "label"})
    # An outer join sorts.
    order = {variant: place for place, variant in enumerate(map(tuple, first[variants].astype(str).to_numpy()))}
    place = [order[variant] for variant in map(tuple, both[variants].astype(str).to_numpy())]
    return both.iloc[np.argsort(place, kind="stable")].reset_index(drop=True)


def _is_empty(value: Any) -> bool:
    return bool(pd.isna(value)) or value == ""


def _clusters_of(rows: pd.DataFrame, clusters: Any) -> np.ndarray | None:
    """Return the cluster of each row, or None if images are independent."""
    if clusters is None:
        return None
    if isinstance(clusters, str):
        for name in ("label", "class") if clusters == "class" else (clusters,):
            if name in rows:
                return rows[name].to_numpy()
        raise ValueError(
            f"Expected a column {'`label` or `class`' if clusters == 'class' else repr(clusters)} for `clusters` but "
            f"there is none. Pass `clusters` as an array (N,) of the images' classes, or None for independent images."
        )
    groups = to_numpy(clusters).ravel()
    if not pd.api.types.is_integer_dtype(rows["image"]):
        raise ValueError(
            "Expected column `image` to number the images, 0 to N - 1, since `clusters` is an array in their order, "
            f"but got {rows['image'].iloc[0]!r}. Pass the name of a column that has the clusters."
        )
    last = int(rows["image"].max())
    if last >= len(groups):
        raise ValueError(
            f"Expected argument `clusters` to hold one cluster for each image, 0 to {last}, but got {len(groups)}."
        )
    return np.asarray(groups[rows["image"].to_numpy(int)])


def _compare_classes(pair: _Pair, first: pd.DataFrame, second: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of CGIM."""
    truths = [_matrices(table[table["metric"] == CLASS_CONCEPTS]).get("") for table in (first, second)]
    truth = truths[0] if truths[0] is not None else truths[1]
    if truth is None:
        raise ValueError(
            f"Expected rows of {CLASS_CONCEPTS!r} with those of {CLASS_IMPORTANCE!r} but there are none. They "
            "belong to no model: to compare the models of one table pass the whole table, `compare(scores)`."
        )
    theirs, others = (_matrices(table[table["metric"] == CLASS_IMPORTANCE]) for table in (first, second))
    conventions = [_conventions(table) for table in (first, second)]
    for explanation in (name for name in theirs if name in others):
        pairs = [truth, theirs[explanation], others[explanation]]
        sides = [(f"the rows of {pair.a!r}", pairs[1]), (f"the rows of {pair.b!r}", pairs[2])]
        lost = [text for name, matrix in sides for text in _lost(name, matrix, truth)]
        lost += [text for _, matrix in sides for text in _lost(f"those of {CLASS_CONCEPTS!r}", truth, matrix)]
        if lost:
            raise ValueError(
                f"Expected rows of {CLASS_IMPORTANCE!r} for the same classes and concepts as those of "
                f"{CLASS_CONCEPTS!r} but {'; '.join(dict.fromkeys(lost))}. Pass the whole table."
            )
        class_concepts, a, b = (torch.tensor(matrix.to_numpy(float)) for matrix in pairs)
        convention, other = (of_table.get(explanation, "") for of_table in conventions)
        for metric, centred in ((CGIM, False), (CGIM_CORRELATION, True)):
            for per in ("concept", "class"):
                if convention == other or (centred and per == "concept"):
                    about = {"metric": metric, "explanation": explanation, "item_kind": per}
                    about |= {"convention": convention} if convention == other else {}
                    result = cgim_difference(a, b, class_concepts, per, centred)
                    yield about | _numbers(pair, result) | {_WHY: FEW_CLASSES if np.isnan(result.p) else ""}


def _conventions(table: pd.DataFrame) -> dict[str, str]:
    """Return what each explanation's importance is counted from."""
    known = table[["explanation", "convention"]].fillna("") if {"explanation", "convention"} <= {*table} else None
    return {} if known is None else dict(known.itertuples(index=False, name=None))


def _lost(name: str, matrix: pd.DataFrame, whole: pd.DataFrame) -> Iterator[str]:
    """Yield which classes and which concepts of a whole matrix another one lacks."""
    for noun, here, there in (("classes", matrix.index, whole.index), ("concepts", matrix.columns, whole.columns)):
        if len(missing := there.difference(here)):
            yield f"{name} lack the {noun} {list_some(missing)}"


def _matrices(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the matrix (K, L) of each explanation."""
    explanations = rows["explanation"].fillna("") if "explanation" in rows else pd.Series("", rows.index)
    return {
        str(name): rows.loc[explanations == name].pivot(index="label", columns="item", values="value")
        for name in explanations.unique()
    }


def plot_comparison(result: pd.DataFrame, ax: Axes | None = None) -> tuple[Figure, Axes]:
    """Draw the differences of a comparison with their intervals; a filled point has an adjusted p of at most .05.

    Parameters
    ----------
    result : DataFrame
        Result of `compare`, or some of its rows.
    ax : Axes, optional
        Where to draw; a new figure if None.

    Returns
    -------
    tuple of Figure and Axes
        Nothing is shown or saved.

    Raises
    ------
    ValueError
        If `result` has no rows, or lacks a column.

    Examples
    --------
    >>> import pandas as pd
    >>> from quantus_concepts import compare, plot_comparison
    >>> scores = {"ours": [1, 1, 0, 1, 1, 1], "theirs": [1, 0, 0, 1, 0, 1]}
    >>> images = {"metric": "CEM", "image": range(6), "label": [0, 0, 1, 1, 2, 2]}
    >>> table = pd.concat(
    ...     pd.DataFrame({"model": name, **images, "value": scores[name]}) for name in scores
    ... )
    >>> figure, ax = plot_comparison(compare(table))
    >>> ax.get_yticklabels()[0].get_text()
    'CEM: ours - theirs'
    """
    missing = {"metric", "a", "b", *NUMBERS} - {*result}
    if missing or result.empty:
        raise ValueError(
            f"Expected argument `result` to be what `compare` returns, with rows, but got {len(result)} rows without "
            f"the columns {sorted(missing)}."
        )
    labels = [_label(row) for row in result.to_dict("records")]
    if ax is None:
        width = 3.5 + 0.075 * max(map(len, labels))
        _, ax = plt.subplots(figsize=(width, 0.9 + 0.3 * len(labels)), layout="constrained", FigureClass=TextFigure)
    places = np.arange(len(labels))
    values = result["difference"].to_numpy(float)
    reach = np.stack([values - result["low"].to_numpy(float), result["high"].to_numpy(float) - values])
    ax.axvline(0, color="black", linewidth=0.8)
    ax.errorbar(values, places, xerr=np.nan_to_num(reach).clip(min=0), fmt="none", ecolor="tab:blue", capsize=3)
    differs = result["p_adjusted"].to_numpy(float) <= 0.05
    for chosen, face in ((differs, "tab:blue"), (~differs, "white")):
        ax.plot(values[chosen], places[chosen], "o", color="tab:blue", markerfacecolor=face, zorder=3)
    ax.set_yticks(places, labels, fontsize="small", parse_math=False)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlabel("paired difference, 95 % interval (filled: adjusted p at most .05)", fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)
    return figure_of(ax), ax


def _label(row: Mapping[str, Any]) -> str:
    """Return what a row of the result compares."""
    variant = [
        value if isinstance(value, str) else f"{name} = {value:g}"
        for name, value in row.items()
        if name not in ("metric", "a", "b", *NUMBERS) and not _is_empty(value)
    ]
    return f"{' '.join([str(row['metric']), *variant])}: {row['a'] or 'itself'} - {row['b'] or 'itself'}"
