"""The tree of calls that drawings and tables share, and the width each call gets on paper."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

from core.report_builder import bound, known, layer, report, reports, unknown
from torchscan import scan
from torchscan.contract.states import Complete, Partial, Unavailable
from torchscan.report.plot import METRICS, CallTree, Covered
from torchscan.report.schema import MetricOwner, ParameterCount, Report


def macs(result):
    return {"macs": result}


def at_least(state):
    """The lower bound of a partial state; its reason says where it came from."""
    assert isinstance(state, Partial)
    return state.known_value


def test_the_caller_is_the_parent_and_not_the_module_above_by_path():
    tree = CallTree(
        report(
            layer("", "Model"),
            layer("a", "Block", parent=MetricOwner("", 0)),
            layer("a.shared", parent=MetricOwner("a", 0)),
            layer("b", "Block", parent=MetricOwner("", 0)),
            layer("a.shared", call_index=1, parent=MetricOwner("b", 0)),
        )
    )
    assert tree.parents == (-1, 0, 1, 0, 3)
    assert tree.children == ((1, 3), (2,), (), (4,), ())
    assert tree.calls == (5, 2, 1, 2, 1)


def test_a_row_without_caller_is_below_the_latest_call_of_the_nearest_module():
    # Two calls of `enc`; `enc.layers` is a ModuleList, which is never called.
    rows = [layer("", "Model"), layer("enc", "Encoder"), layer("enc.layers.0"), layer("enc", "Encoder", call_index=1)]
    tree = CallTree(report(*rows, layer("enc.layers.0", call_index=1)))
    assert tree.parents == (-1, 0, 1, 0, 3)


def test_an_owner_that_is_nowhere_above_by_path_is_the_parent():
    tree = CallTree(
        report(
            layer("", "Model"),
            layer("a", "Block"),
            layer("b", "Owner", metrics=macs(known(7, scope="subtree"))),
            layer("a.shared", metric_owners={"macs": MetricOwner("b", 0)}),
        )
    )
    assert tree.parents == (-1, 0, 0, 2)


def test_a_root_that_calls_itself_stays_one_tree():
    assert CallTree(report(layer("", "Model"), layer("", "Model", call_index=1))).parents == (-1, 0)


def test_shares_follow_what_is_known_and_leave_a_strip_for_what_is_not():
    tree = CallTree(
        report(
            layer("", "Model"),
            layer("a", metrics=macs(known(60))),
            layer("b", metrics=macs(bound(20))),
            layer("c", metrics=macs(unknown())),
            layer("d", metrics=macs(known(0))),
        )
    )
    sizes = tree.sizes("macs")
    # 60 + 20 + ? + 0: at least 80.
    assert at_least(sizes.total[0]) == 80
    # The unknown call gets 0.05; of the other 0.95 a gets 60/80 and b 20/80; an exact zero has no width.
    assert sizes.share == pytest.approx((1, 0.7125, 0.2375, 0.05, 0))


def test_own_work_beside_children_leaves_room_for_itself():
    tree = CallTree(report(layer("", "Model", metrics=macs(known(10))), layer("a", metrics=macs(known(30)))))
    sizes = tree.sizes("macs")
    # 10 of its own and 30 inside make 40; the child is 30/40 of it.
    assert sizes.total == (Complete(40), Complete(30))
    assert sizes.share == pytest.approx((1, 0.75))


def test_covered_calls_divide_the_owners_width_by_their_number_of_calls():
    owner = {"macs": MetricOwner("o", 0)}
    tree = CallTree(
        report(
            layer("", "Model"),
            layer("o", "Owner", metrics=macs(known(40, scope="subtree"))),
            layer("o.x", "Block", metric_owners=owner),
            layer("o.x.y", metric_owners=owner),
            layer("o.x.z", metric_owners=owner),
            layer("o.w", metric_owners=owner),
        )
    )
    sizes = tree.sizes("macs")
    # The owner's 40 counts once, and no descendant has a number.
    assert sizes.total[:2] == (Complete(40), Complete(40))
    assert sizes.own[2:] == sizes.total[2:] == (Covered(1),) * 4
    # o.x holds three calls, o.w one; o.x's own two children have the same.
    assert sizes.share == pytest.approx((1, 1, 0.75, 0.5, 0.5, 0.25))


def test_a_failed_owner_is_unknown_and_its_descendants_do_not_stand_in():
    tree = CallTree(
        report(
            layer("", "Model"),
            layer("o", "Owner", metrics=macs(unknown(scope="subtree"))),
            layer("o.x", metric_owners={"macs": MetricOwner("o", 0)}),
            layer("a", metrics=macs(known(5))),
        )
    )
    sizes = tree.sizes("macs")
    assert at_least(sizes.total[0]) == 5
    assert isinstance(sizes.total[1], Unavailable)
    assert sizes.share == pytest.approx((1, 0.05, 1, 0.95))


def test_where_nothing_is_known_the_calls_share_the_width():
    rows = [layer(path, metrics=macs(unknown())) for path in ("a", "b", "c", "d")]
    sizes = CallTree(report(layer("", "Model"), *rows)).sizes("macs")
    assert isinstance(sizes.total[0], Unavailable)
    assert sizes.share == pytest.approx((1, 0.25, 0.25, 0.25, 0.25))


def test_a_bound_of_zero_makes_nothing_known_as_in_the_totals_of_a_scan():
    class Leaf(nn.Module):
        """What no handler knows."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x):
            return x * self.weight

    class Sum(nn.Module):
        """Arithmetic that nobody accounts for, beside it: at least 0."""

        def __init__(self):
            super().__init__()
            self.leaf = Leaf()

        def forward(self, x):
            return self.leaf(x) + x

    drawn = scan(nn.Sequential(Sum()), (4,))
    sizes = CallTree(drawn).sizes("module_flops")
    assert at_least(sizes.own[1]) == 0
    assert drawn.totals.module_flops.status == "unavailable"
    assert [type(state) for state in sizes.total] == [Unavailable] * 3


def test_many_unknown_calls_take_no_more_than_their_part():
    rows = [layer(f"u{number}", metrics=macs(unknown())) for number in range(20)]
    sizes = CallTree(report(layer("", "Model"), *rows, layer("a", metrics=macs(known(1))))).sizes("macs")
    # 20 strips share 0.3, the known call has the rest.
    assert sizes.share[1:] == pytest.approx([0.015] * 20 + [0.7])


def test_parameters_are_always_known():
    rows = [layer("a", parameters=ParameterCount(3, 1, 16)), layer("b", parameters=ParameterCount(12, 0, 48))]
    tree = CallTree(report(layer("", "Model"), *rows))
    assert tree.sizes("parameters").total == (Complete(16), Complete(4), Complete(12))
    assert tree.sizes("parameters").share == pytest.approx((1, 0.25, 0.75))
    assert tree.sizes("parameter_bytes").total[0] == Complete(64)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_nothing_incomplete_is_ever_drawn_as_zero(any_report: Report):
    tree = CallTree(any_report)
    for metric in METRICS:
        sizes = tree.sizes(metric.key)
        for index, (state, share) in enumerate(zip(sizes.total, sizes.share, strict=True)):
            assert 0 <= share <= 1 + 1e-9
            if not isinstance(state, Complete):
                assert share > 0, (metric.key, index)
            assert sum(sizes.share[child] for child in tree.children[index]) <= 1 + 1e-9
