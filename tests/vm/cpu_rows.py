"""Rows of CPUs: programs choose their code by the features of a CPU, and report what a CPU that is too old lacks."""

import dataclasses
import json
import pathlib

from tests.scripts.fixtures.paths import ROOT
from tests.vm.driver_rows import CARDS
from tests.vm.kernels import Missing
from tests.vm.ring import check_perf, expect
from tests.vm.row import Row

TESTS = "tests/compress_test"
# Golden blocks, choice of kernels, contracts of codecs. These tests take seconds; all tests would take minutes.
FILTER = "*/Golden.*:*Names.*:*Pin*:*Contract.*:*Table.*"
TOO_OLD = r"this CPU lacks [^;]*SSE4.2, POPCNT.*; gradlane needs x86-64-v2"


@dataclasses.dataclass
class Cpu:
    """`model` is QEMU's name of the CPU. `isa` is the instruction set that gradlane must choose on it."""

    model: str
    isa: str

    def play(self, stage):
        """Runs the unit tests of codecs, and a ring."""
        ring = dataclasses.replace(CARDS["virtio"], perf="-b 16K -e 16K -n 2 -w 1 --codec raw,fixed:10,inceptionn:10",
                                   settings={"workers": "{lanes: 1, threads: 1, idle: adaptive}"})
        guest = ring.prepare(stage, cpu=self.model)
        guest.files |= unit_tests(stage.build)
        stage.boot(guest)
        found = json.loads(guest.run("gradlane codecs --json").output)["isa"]
        assert found == self.isa, f"{self.model}: {found} instead of {self.isa}"
        tests = guest.run(f"chmod 755 /tests/*; GRADLANE_GOLDEN_DIR=/golden /tests/compress_test --gtest_brief=1 "
                          f"--gtest_color=no --gtest_filter='{FILTER}'", timeout=200).output
        passed = expect(r"PASSED  \] ([1-9]\d+ tests)", tests)[1]
        ring.start(guest)
        expect(rf"codec raw \({self.isa}\)", guest.read("/tmp/log0"))
        rows = check_perf(guest.run(f"perf 2 {ring.perf}", timeout=200).output)
        guest.run("stop 0; first=$?; stop 1 && [ $first = 0 ]")
        return f"kernels {found}; unit tests of codecs: {passed}; ring: {rows} sizes and codecs, wrong 0"


def unit_tests(build):
    """Returns files of a guest: the program of unit tests, and the golden blocks that it compares with."""
    program = build / TESTS
    if not program.exists():
        raise Missing(f"no {program}: ninja -C {build} {TESTS}")
    found = {f"/tests/{program.name}": program.read_bytes()}
    for path in filter(pathlib.Path.is_file, (ROOT / "tests/compress/golden").iterdir()):
        found[f"/golden/{path.name}"] = path.read_bytes()
    return found


def too_old(model):
    def play(stage):
        guest = stage.prepare(cpu=model, cpus=1, memory=512)
        stage.boot(guest)
        for program in ("gradlane --version", "gradlaned --config /none.yaml"):
            result = guest.run(program, check=False)
            name = program.split()[0]
            assert result.status == 2 and len(result.output.splitlines()) == 1, result
            expect(f"^{name}: {TOO_OLD}", result.output)
        return result.output
    return play


ROWS = [
    Row("cpu-nehalem", Cpu("Nehalem", "scalar").play, limit=300),
    Row("cpu-haswell", Cpu("Haswell", "avx2").play, limit=300),
    Row("cpu-max", Cpu("max", "avx2").play, limit=300),
    Row("cpu-kvm64", too_old("kvm64")),
]
