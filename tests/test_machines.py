"""Machines: the files that ship, what is wrong with a user's, and the attribute of a module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import MACHINE, load_machine, machine_names, machine_of, write_machine
from treadle.compiler.machines.files import FOLDER
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.passes.set_machine import SetMachinePass

A100 = (FOLDER / "a100.toml").read_text().partition("[sustained")[0]


def empty_module() -> ModuleOp:
    return ModuleOp([])


def test_machines_that_ship():
    variants = ("a100", "a100-40gb", "a100-pcie", "h100", "h100-nvl", "h100-pcie", "h200", "h200-nvl", "l40s")
    assert machine_names() == variants
    for name in machine_names():
        assert load_machine(name).name == name


@pytest.mark.parametrize("name", machine_names())
def test_an_architecture_alone_names_a_machine_that_runs_its_code(name: str) -> None:
    arch, module = load_machine(name).arch, empty_module()
    run_pipeline(module, Options(arch=arch), last="set-machine")
    assert machine_of(module).arch == arch


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("a100", 311.9),
        ("a100-pcie", 311.9),
        ("h100", 989.4),
        ("h200", 989.4),
        ("h100-pcie", 756.5),
        ("h100-nvl", 835.3),
    ],
)
def test_published_tensor_rates(name: str, teraflops: float):
    machine = load_machine(name)
    rate = machine.sms * machine.clock * machine.rates.tensor["f16"]
    assert rate / 1e12 == pytest.approx(teraflops, abs=0.1)


def test_h100_as_in_the_worked_configuration():
    h100 = load_machine("h100")
    assert (h100.sms, h100.clock, h100.levels["device"].bandwidth) == (132, 1.83e9, 3.35e12)
    # Two GPCs of 18 SMs, six of 16 (66 TPCs in 8 GPCs): clusters of four leave two SMs of a GPC of 18.
    assert [h100.blocks_at_a_time(size) for size in (1, 2, 4, 8)] == [132, 132, 128, 128]
    assert replace(h100, gpcs=0).blocks_at_a_time(8) == 128
    assert replace(h100, sms=12).blocks_at_a_time(4) == 4
    assert h100.limits.shared_per_block == 227 * 1024
    assert h100.levels["register"].capacity == 256 * 1024
    assert h100.rates.special == 16
    # 24 KiB a step at an SM's share of device memory.
    share = h100.bytes_per_clock("device") / h100.sms
    assert 24 * 1024 / share == pytest.approx(1772, abs=1)


@pytest.mark.parametrize(("registers", "warps_on_sm"), [(128, 16), (136, 12), (157, 12), (168, 12), (169, 8)])
def test_registers_come_from_quarters_of_the_file(registers: int, warps_on_sm: int):
    # NVIDIA's occupancy header: 157 registers would divide the file by 13 warps, but hold only 12.
    a100 = load_machine("a100")
    assert a100.blocks_on_sm(1, registers, 0) == warps_on_sm
    assert a100.blocks_on_sm(4, registers, 0) == warps_on_sm // 4


def test_blocks_on_sm_are_limited_by_everything():
    a100 = load_machine("a100")
    assert a100.blocks_on_sm(4, 32, 0) == 16
    assert a100.blocks_on_sm(1, 32, 0) == 32
    assert a100.blocks_on_sm(4, 32, 163 * 1024) == 1
    assert a100.blocks_on_sm(4, 32, 163 * 1024 + 1) == 0
    assert a100.blocks_on_sm(4, 256, 0) == 0
    assert a100.blocks_on_sm(33, 16, 0) == 0
    assert a100.blocks_on_sm(8, 255, 0) == 1
    assert a100.blocks_on_sm(12, 255, 0) == 0


def test_unknown_machine_lists_the_known():
    with pytest.raises(
        TreadleError, match=r"unknown machine 'v100': known are a100, a100-40gb, .* h200-nvl, l40s, or give"
    ):
        load_machine("v100")


def test_a_file_is_a_machine(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(A100.replace('name = "a100"', 'name = "mine"').replace("sms = 108", "sms = 12"))
    assert (load_machine(path).name, load_machine(str(path)).sms) == ("mine", 12)


def test_variants_say_what_differs():
    a100, small = load_machine("a100"), load_machine("a100-40gb")
    assert small.levels["device"].capacity == 40_000_000_000
    assert small.levels["device"].bandwidth < a100.levels["device"].bandwidth
    assert (small.limits, small.rates, small.levels["shared"]) == (a100.limits, a100.rates, a100.levels["shared"])
    assert small.sustained.tensor == {}  # what was measured on another machine says nothing here


def test_products_of_single_warps():
    """On Hopper they reach a part of the rate, and multiply 8 bits as two products in f16."""
    h100, l40s, a100 = load_machine("h100"), load_machine("l40s"), load_machine("a100")
    assert h100.products_of_single_warps("f16") == 0.667 * 4096
    assert h100.products_of_single_warps("f8") == 0.667 * 4096
    assert h100.rates.products("f8") == 8192
    assert (l40s.products_of_single_warps("f8"), l40s.rates.products("f16")) == (2048, 1024)
    assert a100.products_of_single_warps("f8") == a100.products_of_single_warps("f16") == 2048


def test_datasheet_and_sustained_rates_are_apart():
    h100 = load_machine("h100")
    lasting = h100.as_sustained()
    assert h100.tensor_flops("bf16") == pytest.approx(989.4e12, rel=1e-3)
    of_a100 = load_machine("a100").as_sustained()
    assert of_a100.tensor_flops("bf16") == pytest.approx(267.9e12)
    assert lasting.tensor_flops("f16") == pytest.approx(1.46e9 * 132 * 4096)
    assert lasting.rates.tensor == h100.rates.tensor  # tensor cores do as much in a clock
    assert lasting.launch == 1.4e-6
    assert lasting.levels["l2"].coalesced == h100.levels["l2"].coalesced == 0.6  # no rate


def test_the_clock_falls_as_power_is_drawn():
    """All that multiprocessors and L2 do goes with their clock; device memory has its own. Of products the power goes
    with its third power."""
    lasting = load_machine("h100").as_sustained()
    whole, most = lasting.under_load(1), lasting.under_load(0.6)
    assert (lasting.clock, whole.clock) == pytest.approx((1.98e9, 1.46e9))
    assert 0.6 * most.clock**3 == pytest.approx(whole.clock**3)
    assert lasting.under_load(0.1).clock == lasting.under_load(0).clock == lasting.clock
    beside_memory = lasting.under_load(0.6, 0.5)
    assert 0.6 * beside_memory.clock**3 == pytest.approx((1 - 0.5 * lasting.memory_power) * whole.clock**3)
    for level in ("l2", "shared"):
        assert whole.bytes_per_clock(level) == pytest.approx(lasting.bytes_per_clock(level))
    assert whole.levels["device"] == lasting.levels["device"]
    assert whole.rates == lasting.rates
    assert load_machine("h100").under_load(1, 1) == load_machine("h100")  # of the datasheet there is one clock


def test_a_file_may_be_based_on_a_machine(tmp_path: Path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nbase = "h100"\nsms = 100\n[levels.l2]\nbandwidth = 5e12\n'
        "[sustained]\ndevice = 3e12\nl2 = 4e12\nlaunch = 2e-6\nsingle_warps = 0.5\nclock_of_products = 1.4e9\n"
    )
    mine = load_machine(path)
    assert (mine.sms, mine.levels["l2"].bandwidth, mine.limits) == (100, 5e12, load_machine("h100").limits)
    assert (mine.launch, mine.rates.single_warps) == (0.9e-6, 0.667)
    lasting = mine.as_sustained()
    assert (lasting.levels["device"].bandwidth, lasting.levels["l2"].bandwidth) == (3e12, 4e12)
    assert (lasting.launch, lasting.rates.single_warps) == (2e-6, 0.5)
    assert lasting.memory_power == 0  # so the clock falls by products alone
    assert lasting.under_load(1, 1).clock == lasting.under_load(1).clock == 1.4e9
    assert lasting.rates.special == mine.rates.special  # nobody measured it: what the base says is of the base
    assert (lasting.clock, lasting.levels["l2"].coalesced) == (mine.clock, 0.6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('base = "h900"', r"'base' is 'h900': expected one of a100, "),
        ("base = 1", r"'base' is 1: expected one of"),
        (
            'base = "h100"\n[sustained]\ndevice = 9e12',
            r"'sustained.device' is 9e\+12 bytes a second, much more than levels.device.bandwidth",
        ),
        ('base = "h100"\n[sustained]\ndevice = -1', r"'sustained.device' is -1: expected bytes a second"),
        (
            'base = "h100"\n[sustained.tensor]\nf16 = 2e15',
            r"'sustained.tensor.f16' is 2e\+15 FLOP a second, much more than",
        ),
        ('base = "a100"\n[sustained.tensor]\nf8 = 1e14', r"'sustained.tensor.f8' has no rate of the datasheet"),
        ('base = "h100"\n[sustained]\nlaunch = 2', r"'sustained.launch' is 2: expected seconds"),
        ('base = "h100"\n[sustained]\nl2 = 0', r"'sustained.l2' is 0: expected bytes a second"),
        ('base = "h100"\n[sustained]\nsingle_warps = 1.5', r"'sustained.single_warps' is 1.5: expected a part"),
        ('base = "h100"\n[rates]\nsingle_warps = 0', r"'rates.single_warps' is 0: expected a part of the rates"),
        (
            'base = "h100"\n[sustained]\nspecial = 9e14',
            r"'sustained.special' is 9e\+14 .*, much more than what rates.special",
        ),
        ('base = "h100"\n[sustained]\nclock = 1.58', r"'sustained.clock' is 1.58: expected clocks a second"),
        (
            'base = "h100"\n[sustained]\nclock_of_products = 3e9',
            r"'sustained.clock_of_products' is 3e\+09 clocks a second, much more than clock \(1.83e\+09\)",
        ),
        ('base = "h100"\n[levels.l2]\ncoalesced = 2', r"'levels.l2.coalesced' is 2: expected a part"),
        ('base = "h100"\n[sustained]\nmemory_power = 420', r"'sustained.memory_power' is 420: expected a part"),
        ('base = "h100"\n[sustained]\ndisk = 1', r"'sustained.disk' is not a key of a machine"),
        ('base = "h100"\nlevels = 3', r"'levels' is 3: expected a table"),
        (
            'base = "h100"\n[levels.device]\nbandwidth = 3.35e13',
            r"'levels.device.bandwidth' is 3.35e\+13 bytes a second, more than levels.l2 passes on",
        ),
        ('base = "h100"\n[levels.l2]\nbytes_per_clock = 512', r"'levels.device.bandwidth' is 3.35e\+12"),
        (
            'base = "h100"\n[sustained]\ndevice = 1.2e10',
            r"'sustained.device' is 1.2e\+10 bytes a second, much less than levels.device.bandwidth \(3.35e\+12\)",
        ),
        ('base = "h100"\n[sustained]\nl2 = 9e13', r"'sustained.l2' is 9e\+13 bytes a second, much more than the"),
        (
            'base = "h100"\n[levels.l2]\ngranularity = 32',
            r"'levels.l2.granularity' is a key that nothing reads: .*; leave",
        ),
        (
            'base = "h100"\n[levels.shared]\nlatency = 29',
            r"'levels.shared.latency' .* levels.device.latency; leave it out",
        ),
        ('base = "h100"\n[levels.l2]\nlatency = 2', r"'levels.l2.latency' is 2: expected a whole number of clocks"),
        (
            'base = "h100"\n[levels.register]\nbandwidth = 1e13',
            r"'levels.register.bandwidth' is a key that nothing reads",
        ),
        ('base = "h100"\n[rates.tensor]\ni4 = 8192', r"'rates.tensor.i4' is a key that nothing reads: no product"),
        ('base = "h100"\n[limits]\ngrid = [3, 1, 1]', r"'limits.grid' has three numbers: .* write the first alone"),
        (
            'base = "h100"\nzebra = 1',
            r"'zebra' is not a key of a machine: did you mean '.*'\? Rename it or leave it out",
        ),
    ],
)
def test_a_wrong_variant_is_refused(tmp_path: Path, text: str, message: str):
    path = tmp_path / "wrong.toml"
    path.write_text(f'name = "wrong"\n{text}\n')
    with pytest.raises(TreadleError, match=message):
        load_machine(path)


def test_missing_file(tmp_path: Path):
    with pytest.raises(TreadleError, match=r"nowhere\.toml: cannot read the machine file"):
        load_machine(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sms = 108", "", r"'sms' is missing: expected a whole number of multiprocessors, from 1 to 1024 \(the"),
        ("gpcs = 7", "gpcs = 109", r"'gpcs' is 109: expected a whole number of clusters of .*, from 1 to 64"),
        ("sms = 108", "sms = 6", r"'gpcs' is 7: there are only sms = 6 to be shared by them"),
        ("sms = 108", "sms = 0", r"'sms' is 0: expected a whole number of multiprocessors, from 1"),
        ("sms = 108", "sms = 1.5", r"'sms' is 1.5: expected a whole number"),
        ("sms = 108", "sms = true", r"'sms' is True: expected a whole number"),
        ("sms = 108", 'sms = "many"', r"'sms' is 'many'"),
        ("clock = 1.41e9", "clock = 1410", r"'clock' is 1410: expected clocks a second"),
        ("launch = 0.9e-6", "", r"'launch' is missing: expected seconds from one kernel of a stream to the next"),
        ("launch = 0.9e-6", "launch = 0.9", r"'launch' is 0.9: expected seconds .* from 1e-07 to 0.0001 \(launches"),
        ("clock = 1.41e9", "clock = nan", r"'clock' is nan"),
        ("clock = 1.41e9", "clock = inf", r"'clock' is inf"),
        ('arch = "sm_80"', 'arch = "ampere"', r"'arch' is 'ampere': expected one of sm_80, "),
        ('arch = "sm_80"', 'arch = "sm_70"', r"'arch' is 'sm_70': expected one of sm_80, "),
        ("sms = 108", "sms = 108\nsm_count = 2", r"'sm_count' is not a key of a machine"),
        ("special = 16", "speciel = 16", r"'rates.special' is missing: .*; 'speciel' stands there: did you mean it\?"),
        ("special = 16", "special = 16\nspeciel = 16", r"'rates.speciel' .* did you mean 'special'"),
        ("f16 = 2048", "f16 = 2048\nf17 = 1", r"'rates.tensor.f17' is not a key"),
        ("bandwidth = 2.039e12", "", r"'levels.device.bandwidth' or 'bytes_per_clock' must be given"),
        ("bandwidth = 2.039e12", "bandwidth = 1e12\nbytes_per_clock = 1", r"and not both"),
        ("bandwidth = 2.039e12", "bandwidth = -1", r"'levels.device.bandwidth' is -1"),
        ('scope = "sm"', 'scope = "machine"', r"'levels.shared.scope' is 'machine'"),
        ("[levels.l2]", "[levels.l3]", r"'levels.l2' is missing: expected a table"),
        ("shared_per_block = 166_912", "shared_per_block = 200_000", r"more than levels.shared.capacity"),
        ("capacity = 262_144", "capacity = 262_143", r"registers of 4 bytes are 262144"),
        ("threads_per_block = 1024", "threads_per_block = 1000", r"not multiples of 32"),
        ("registers_per_thread = 255", "registers_per_thread = 1000", r"from 16 to 255"),
        ("grid = 2_147_483_647", "grid = 2_147_483_648", r"'limits.grid' is 2147483648: expected .* no larger grid"),
        ("[rates]", "[rates", r"is not TOML"),
        pytest.param("sms = 108", f"sms = {'9' * 5000}", r"is not TOML: Exceeds the limit", id="thousands of digits"),
        (
            "shared_reserved = 1024",
            "shared_reserved = 2048",
            r"'limits.shared_reserved' is 2048: with limits.shared_per",
        ),
        ("register_partitions = 4", "register_partitions = 3", r"'limits.register_partitions' is 3: .* equal parts"),
        ("register_granularity = 256", "register_granularity = 7", r"units of limits.register_granularity = 7"),
    ],
)
def test_a_wrong_file_is_refused_with_file_key_and_reason(tmp_path: Path, old: str, new: str, message: str):
    assert old in A100
    path = tmp_path / "wrong.toml"
    path.write_text(A100.replace(old, new, 1))
    with pytest.raises(TreadleError, match=message) as caught:
        load_machine(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("clock = 1.41e9", "1.41", r"clocks a second, as in 1.41e9, from 2e\+08 to 5e\+09 \(GPUs run at 1 to 3 GHz"),
        ("capacity = 80_000_000_000", "80", r"a whole number of bytes, from 1e\+08 to 4e\+12 \(GPUs have 1 to 300 GB"),
        ("capacity = 41_943_040", "40", r"a whole number of bytes, from 65536 to 4e\+09"),
        ("capacity = 167_936", "164", r"bytes of one multiprocessor, from 16384 to 4194304 \(GPUs have 64 to 256 KiB"),
        ("bandwidth = 2.039e12", "2.039", r"bytes a second, as in 2.039e12, from 1e\+10 to 1e\+14 \(GPUs have"),
        ("bytes_per_clock = 5120", "5.12e12", r"bytes a clock, from 70.922 to 709220 \(GPUs have .* at 1.41e\+09 Hz"),
        ("latency = 466", "3", r"clocks until the first byte of a load arrives, from 50 to 10000"),
        ("threads_per_sm = 2048", "2_048_000", r"a whole number of threads, from 32 to 4096"),
        ("blocks_per_sm = 32", "1000", r"a whole number of blocks, from 1 to 128"),
        ("registers_per_sm = 65_536", "64", r"registers of 4 bytes, from 8192 to 1048576"),
        ("register_partitions = 4", "64", r"parts of the register file, from 1 to 16 \(GPUs have 4"),
        ("float = 64", "19.5e12", r"results a clock of one multiprocessor, from 8 to 1024 \(GPUs make 64 to 128"),
        ("special = 16", "0.5", r"results a clock of one multiprocessor, from 1 to 256 \(GPUs make 16"),
        ("f16 = 2048", "312e12", r"FLOP a clock of one multiprocessor, from 32 to 131072"),
    ],
)
def test_what_is_absurd_is_refused_with_unit_range_and_reason(tmp_path: Path, key: str, value: str, reason: str):
    """A unit too large or too small, for the most part."""
    path = tmp_path / "absurd.toml"
    assert A100.count(key) >= 1
    path.write_text(A100.replace(key, f"{key.partition('=')[0]}= {value}", 1))
    with pytest.raises(TreadleError, match=reason) as caught:
        load_machine(path)
    assert str(path) in str(caught.value)
    assert f"{key.split()[0]}' is " in str(caught.value)


def leaves(data: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        yield from leaves(value, (*path, key)) if isinstance(value, Mapping) else [(*path, key)]


def test_every_key_of_a_file_is_read_by_something() -> None:
    """What no code names beyond this package and its checks would be a promise that nobody keeps: each field of the
    dataclasses, and each level, stands in the cost model, the passes, or the methods that they call."""
    root = FOLDER.parents[1]
    code = [path for folder in ("compiler", "passes", "runtime") for path in (root / folder).rglob("*.py")]
    outside = "\n".join(path.read_text() for path in code if path.name not in ("files.py", "bounds.py", "tables.py"))
    fields = {path[-1] for path in leaves(tomllib.loads((FOLDER / "h100.toml").read_text()))}
    told_otherwise = {"bytes_per_clock", "scope", "name", "arch"} | set(load_machine("h100").rates.tensor)
    unread = {key for key in fields - told_otherwise if len(re.findall(rf"\.{key}\b", outside)) == 0}
    assert not unread


def test_binary_file_is_refused(tmp_path: Path):
    path = tmp_path / "wrong.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TreadleError, match="is not TOML"):
        load_machine(path)


@pytest.mark.parametrize("name", machine_names())
def test_module_keeps_the_whole_machine_through_text(name: str):
    module = empty_module()
    write_machine(module, load_machine(name))
    assert machine_of(module) == load_machine(name)
    assert machine_of(parse_module(str(module))) == load_machine(name)


def test_default_machine():
    assert machine_of(empty_module()) == load_machine("a100")


def test_attribute_that_is_no_machine():
    module = empty_module()
    module.attributes[MACHINE] = StringAttr("h100")
    with pytest.raises(TreadleError, match="expected a dictionary"):
        machine_of(module)


def test_attribute_that_lacks_a_key():
    text = re.sub(r"sms = 108 : i64", "sms = -1 : i64", _module_text())
    with pytest.raises(TreadleError, match=r"the module's attribute 'machine': machine: 'sms' is -1"):
        machine_of(parse_module(text))


def _module_text() -> str:
    module = empty_module()
    write_machine(module, load_machine("a100"))
    return str(module)


@pytest.mark.parametrize("text", ["set-machine", 'set-machine{name="h100"}', 'set-machine{file="a/b.toml"}'])
def test_pass_options_go_through_text(text: str):
    (spec,) = parse_pipeline(text)
    assert str(SetMachinePass.from_spec(spec)) == text
    (again,) = parse_pipeline(str(SetMachinePass.from_spec(spec)))
    assert SetMachinePass.from_spec(again) == SetMachinePass.from_spec(spec)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (SetMachinePass("v100"), "known are a100"),
        (SetMachinePass("h100", "x.toml"), "was given both"),
        (SetMachinePass(file="/nowhere/x.toml"), "cannot read"),
    ],
)
def test_pass_refuses(given: SetMachinePass, message: str):
    with pytest.raises(PassFailedException, match=message):
        given.apply(Context(), empty_module())


def test_pass_replaces_the_machine():
    module = empty_module()
    SetMachinePass("h100").apply(Context(), module)
    SetMachinePass("h200").apply(Context(), module)
    assert machine_of(module).name == "h200"


@pytest.mark.parametrize("registers", [0, np.array([0, 64])])
def test_a_block_without_registers_is_on_no_sm(registers: Any) -> None:
    """Of one candidate or many; numpy would only warn of the division."""
    with np.errstate(all="raise"):
        blocks = load_machine("h100").blocks_on_sm(4, registers, 1024)
    assert np.ravel(blocks)[0] == 0
    assert np.all(np.ravel(blocks)[1:] > 0)
