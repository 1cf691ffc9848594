"""Schedules compared with closed forms; every parameter is in exactly one group."""

import math
from typing import get_args

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench.training.optim import Schedule, ScheduleName, fuse, parameter_groups


def test_cosine_with_warmup_matches_the_closed_form():
    schedule = Schedule("cosine", warmup=10)
    assert [schedule.factor_at(i, 110) for i in range(10)] == pytest.approx([(i + 1) / 10 for i in range(10)])
    for i in range(10, 111):
        assert schedule.factor_at(i, 110) == pytest.approx((1 + math.cos(math.pi * (i - 10) / 100)) / 2)


def test_graphgps_warmup_trains_its_first_epoch_at_a_millionth():
    schedule = Schedule("cosine", interval="epoch", warmup=5, warmup_floor=1e-6)
    assert [schedule.factor_at(e, 100) for e in range(6)] == pytest.approx([1e-6, 0.2, 0.4, 0.6, 0.8, 1.0])


def test_linear_and_floor():
    schedule = Schedule("linear", warmup=2, floor=0.1)
    assert schedule.factor_at(2, 12) == 1.0
    assert schedule.factor_at(7, 12) == pytest.approx(0.55)
    assert schedule.factor_at(12, 12) == pytest.approx(0.1)
    assert schedule.factor_at(50, 12) == pytest.approx(0.1)


def test_step_and_exponential_agree_where_a_step_ends():
    step, smooth = Schedule("step", step_size=30, gamma=0.8), Schedule("exponential", step_size=30, gamma=0.8)
    for drops in range(4):
        assert step.factor_at(30 * drops, 0) == pytest.approx(0.8**drops)
        assert smooth.factor_at(30 * drops, 0) == pytest.approx(0.8**drops)
    assert step.factor_at(59, 0) == pytest.approx(0.8)


def test_drops_come_at_milestones_as_in_torch():
    schedule = Schedule("step", interval="epoch", milestones=(3, 5, 11), gamma=0.1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    decay = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5, 11], gamma=0.1)
    for epoch in range(14):
        assert schedule.factor_at(epoch, 0) == pytest.approx(decay.get_last_lr()[0])
        optimizer.step()
        decay.step()


@pytest.mark.parametrize("name", ["step", "exponential"])
def test_drops_end_at_the_floor(name):
    schedule = Schedule(name, step_size=2, gamma=0.1, floor=0.02)
    assert [schedule.factor_at(count, 0) for count in (0, 2, 4, 400)] == pytest.approx([1.0, 0.1, 0.02, 0.02])


def test_inverse_sqrt_falls_with_the_root_of_the_step():
    """The full rate is reached at the end of warm-up, a tenth of it after 100 times as many steps."""
    schedule = Schedule("inverse_sqrt", warmup=50)
    assert [schedule.factor_at(step, 0) for step in (24, 49, 50, 200, 5_000)] == pytest.approx([0.5, 1, 1, 0.5, 0.1])
    without = Schedule("inverse_sqrt")
    assert [without.factor_at(step, 0) for step in (0, 1, 4, 100)] == pytest.approx([1, 1, 0.5, 0.1])


def test_warmup_over_a_running_decay_equals_the_product_of_torch_schedulers():
    schedule = Schedule("step", warmup=7, warmup_overlaps=True, step_size=4, gamma=0.5)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    decay = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    for step in range(20):
        assert schedule.factor_at(step, 0) == pytest.approx(decay.get_last_lr()[0] * min(1.0, (step + 1) / 7))
        optimizer.step()
        decay.step()


def test_an_overlapping_warmup_leaves_the_length_of_the_run_to_the_decay():
    schedule = Schedule("linear", warmup=5, warmup_overlaps=True)
    assert schedule.factor_at(0, 20) == pytest.approx(1 / 5)
    assert [schedule.factor_at(i, 20) for i in (5, 10, 20)] == pytest.approx([0.75, 0.5, 0.0])


def test_torch_optimizer_follows_the_factor():
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    schedule = Schedule("cosine", warmup=3)
    configured = schedule.configure(optimizer, lambda: 20, lambda: None, "val/MAE", "min")
    assert configured is not None
    assert configured["interval"] == "step"
    for step in range(20):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * schedule.factor_at(step, 20))
        optimizer.step()
        configured["scheduler"].step()


def test_constant_needs_no_scheduler_and_plateau_watches_the_metric():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    assert Schedule().configure(optimizer, lambda: 1, lambda: 1, "val/AP", "max") is None
    configured = Schedule("plateau", factor=0.1, patience=0).configure(optimizer, lambda: 1, lambda: 1, "val/AP", "max")
    assert configured is not None
    assert configured["monitor"] == "val/AP"
    for score in (0.5, 0.6, 0.4):
        configured["scheduler"].step(score)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_plateau_watches_the_loss_when_asked_to():
    """A rising loss cuts the rate and a falling one does not, even if the metric is to be maximized."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Schedule("plateau", factor=0.1, patience=0, watch="loss")
    configured = schedule.configure(optimizer, lambda: 1, lambda: 1, "val/AP", "max")
    assert configured is not None
    assert configured["monitor"] == "val/loss"
    rates = []
    for loss in (0.5, 0.4, 0.6):
        configured["scheduler"].step(loss)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1.0, 1.0, 0.1])


def test_the_rate_ends_a_run_once_every_group_is_below_the_limit():
    schedule = Schedule("plateau", stop_below=1e-5)
    assert [schedule.ends(rates) for rates in ([1e-5], [9.9e-6], [9e-6, 2e-5])] == [False, True, False]
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1e-7)
    tiny = Schedule("plateau", patience=0, stop_below=1e-9)
    scheduler = tiny.configure(optimizer, lambda: -1, lambda: None, "val/MAE", "min")["scheduler"]
    for _ in range(8):  # 1e-7 / 2^7 is below 1e-9; the first score is an improvement
        scheduler.step(1.0)
    assert tiny.ends([optimizer.param_groups[0]["lr"]])
    assert not Schedule("plateau").ends([0.0])
    assert not Schedule("cosine", stop_below=1e-5).ends([0.0])
    with pytest.raises(BadInput, match="stop_below must be above min_lr"):
        Schedule("plateau", min_lr=1e-5, stop_below=1e-5)


VALUES = {
    "floor": 0.1, "step_size": 3, "milestones": (2, 4), "gamma": 0.3, "factor": 0.2, "patience": 3, "min_lr": 1e-6,
    "stop_below": 1e-5, "watch": "loss",
}  # fmt: skip


@pytest.mark.parametrize("option", VALUES)
@pytest.mark.parametrize("name", get_args(ScheduleName))
def test_an_option_that_changes_nothing_is_named(name, option, caplog):
    """Compare with the schedule's factors, or with the configured values for plateau."""

    def course(schedule):
        if name == "plateau":
            return [getattr(schedule, one) for one in ("factor", "patience", "min_lr", "stop_below", "watch")]
        return [schedule.factor_at(count, 10) for count in range(10)]

    plain = course(Schedule(name))
    assert not caplog.text
    changed = course(Schedule(name, **{option: VALUES[option]})) != plain
    assert (f"schedule.{option}" in caplog.text) is not changed


@pytest.mark.parametrize("total", [math.inf, 0])
def test_a_run_without_length_is_refused(total):
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(BadInput, match=r"max_epochs"):
        Schedule("cosine").configure(optimizer, lambda: total, lambda: None, "val/MAE", "min")


def warnings_of(caplog, schedule, steps=1_000, epochs=10):
    """Return the warnings of a schedule for a run of this length."""
    caplog.clear()
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule.configure(optimizer, lambda: steps, lambda: epochs, "val/MAE", "min")
    return caplog.text


@pytest.mark.parametrize(("interval", "warned"), [("step", False), ("epoch", True)])
@pytest.mark.parametrize("name", sorted(set(get_args(ScheduleName)) - {"plateau"}))  # which has no warm-up
def test_a_run_that_ends_in_its_warmup_is_told(caplog, name, interval, warned):
    told = warnings_of(caplog, Schedule(name, interval=interval, warmup=50, step_size=500))
    assert ("warmup is 50 epochs, and the run has 10" in told) == warned


@pytest.mark.parametrize("interval", ["step", "epoch"])
def test_drops_that_the_run_does_not_see_are_told(caplog, interval):
    """A warning appears exactly if all factors of the run are 1."""
    total = {"step": 1_000, "epoch": 10}[interval]
    for options in ({"step_size": total - 1}, {"step_size": total}, {"milestones": (total - 1, 5_000)},
                    {"milestones": (total,)}):  # fmt: skip
        schedule = Schedule("step", interval=interval, **options)
        flat = all(schedule.factor_at(count, total) == 1 for count in range(total))
        assert ("never drops" in warnings_of(caplog, schedule)) == flat


@pytest.mark.parametrize("name", ["step", "exponential"])
def test_a_rate_that_is_gone_in_half_of_the_run_is_told(caplog, name):
    """A step size meant in epochs: at step 500 of 1,000 the factor is 2 ** -25 for 20 and 2 ** -5 for 100."""
    assert "after 500 of 1000 steps the rate is 3e-08" in warnings_of(caplog, Schedule(name, step_size=20))
    for schedule in (Schedule(name, step_size=100), Schedule(name, step_size=1, floor=0.01),
                     Schedule(name, step_size=20, interval="epoch")):  # fmt: skip
        assert "after 500" not in warnings_of(caplog, schedule)


def test_a_run_without_an_end_is_told_nothing(caplog):
    for length in (-1, 0, math.inf):
        assert not warnings_of(caplog, Schedule("step", warmup=50), length, None)
        assert not warnings_of(caplog, Schedule("step", warmup=50, interval="epoch"), length, None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("name", "cosin"), ("interval", "steps"), ("warmup", 1.5), ("step_size", 0), ("patience", -1),
        ("warmup_floor", -0.1), ("gamma", -0.5), ("gamma", math.nan), ("factor", 1.5), ("min_lr", -1.0),
    ],
)  # fmt: skip
def test_a_schedule_from_python_is_checked_like_one_of_the_command_line(option, value):
    with pytest.raises(BadInput, match=rf"schedule\.{option} must be"):
        Schedule(**{"name": "exponential"} | {option: value})


def test_a_floor_that_one_cycle_does_not_read_is_named(caplog):
    Schedule("one_cycle", warmup=4, warmup_floor=0.1)
    assert "schedule.warmup_floor: 0.1 is for constant" in caplog.text


def test_impossible_schedules_are_refused():
    with pytest.raises(BadInput, match=r"schedule\.warmup must be an integer of at least 0, but got -1"):
        Schedule("cosine", warmup=-1)
    with pytest.raises(BadInput, match="plateau"):
        Schedule("plateau", warmup=3)
    with pytest.raises(BadInput, match=r"schedule\.floor must be at least 0 and at most 1, but got 2"):
        Schedule("step", floor=2)
    for ends in (0, 5), (5, 5), (160, 120):
        with pytest.raises(BadInput, match=r"schedule\.milestones must grow from above 0, such as \[120, 160\]"):
            Schedule("step", milestones=ends)
    with pytest.raises(BadInput, match=r"schedule\.watch must be one of metric, loss, but got 'val'"):
        Schedule("plateau", watch="val")


def test_every_parameter_is_in_one_group_with_its_rate():
    module = nn.ModuleDict({"encoder": nn.Linear(2, 3), "body": nn.Linear(3, 3), "head": nn.Linear(3, 1)})
    module["head"].bias.requires_grad_(False)
    own = [{"params": list(module["body"].parameters()), "lr_scale": 0.1, "weight_decay": 0.0}]
    groups = parameter_groups(module, own, lr=0.01, lr_scales={"encoder": 10.0, "encoder.bias": 2.0})
    counted = [id(p) for group in groups for p in group["params"]]
    assert sorted(counted) == sorted(id(p) for p in module.parameters() if p.requires_grad)
    rates = {group["name"]: group.get("lr") for group in groups}
    assert rates == {"rest": None, "encoder.bias": 0.02, "encoder": 0.1, "group0": pytest.approx(0.001)}
    assert groups[-1]["weight_decay"] == 0.0


def test_a_prefix_whose_parameters_have_longer_ones_is_no_error():
    module = nn.ModuleDict({"encoder": nn.Linear(2, 3), "head": nn.Linear(3, 1)})
    scales = {"encoder": 10.0, "encoder.bias": 2.0, "encoder.weight": 3.0}
    groups = parameter_groups(module, [], lr=0.01, lr_scales=scales)
    rates = {id(parameter): group.get("lr", 0.01) for group in groups for parameter in group["params"]}
    for name, parameter in module.named_parameters():
        longest = max((prefix for prefix in scales if name.startswith(prefix)), key=len, default=None)
        assert rates[id(parameter)] == pytest.approx(0.01 * scales.get(longest, 1.0))


def test_a_prefix_without_parameters_is_named():
    with pytest.raises(BadInput, match=r"'pe'.*Names start with body"):
        parameter_groups(nn.ModuleDict({"body": nn.Linear(1, 1)}), [], lr=1.0, lr_scales={"pe": 2.0})


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_fused_updates_equal_those_of_the_loop(kind: type[torch.optim.Adam]) -> None:
    torch.manual_seed(0)
    start = [torch.randn(5, 3), torch.randn(7)]
    gradients = [[torch.randn_like(p) * 10.0**-step for p in start] for step in range(6)]
    ends = []
    for make in (fuse, lambda optimizer: optimizer):
        parameters = [nn.Parameter(p.double()) for p in start]
        optimizer = make(kind([{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.1}], weight_decay=0.1))
        for step in gradients:
            for parameter, gradient in zip(parameters, step, strict=True):
                parameter.grad = gradient.double()
            optimizer.step()
        ends.append(parameters)
    for fused, looped in zip(*ends, strict=True):
        torch.testing.assert_close(fused, looped, rtol=1e-12, atol=1e-14)


def test_what_was_asked_for_and_what_a_checkpoint_holds_stays() -> None:
    parameters = [nn.Parameter(torch.zeros(2))]
    assert fuse(torch.optim.Adam(parameters, foreach=True)).param_groups[0]["fused"] is None
    assert fuse(torch.optim.Adam(parameters, fused=False)).param_groups[0]["fused"] is False
    assert "fused" not in fuse(torch.optim.Adadelta(parameters)).param_groups[0]
    old, now = torch.optim.AdamW(parameters), fuse(torch.optim.AdamW(parameters))
    now.load_state_dict(old.state_dict())
    assert now.param_groups[0]["fused"] is None
