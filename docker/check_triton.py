"""Build what Triton needs to launch kernels, as the first launch on a GPU would. Runs inside the image.

    docker run --rm -i graphbench python - < docker/check_triton.py

Triton compiles a C module against Python's headers, loads it from its cache folder, and has ptxas assemble kernels.
No GPU is needed: a library whose functions do nothing replaces the driver.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

STUB = "libcuda.so.1"


def make_driver(folder: Path, sources: str) -> Path:
    """Build a library with every driver function that these sources name.

    Args:
        folder: where to write it.
        sources: text of Triton's sources.

    Raises:
        RuntimeError: there is no C compiler.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise RuntimeError("no C compiler (CC, gcc or clang), which Triton needs to build its launcher")
    names = sorted(set(re.findall(r"\bcu[A-Z]\w+", sources)))
    (folder / "stub.c").write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in names))
    words = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{STUB}", "-o", str(folder / STUB), str(folder / "stub.c")]
    subprocess.run(words, check=True)
    return folder / STUB


def build(folder: Path) -> list[str]:
    """Build and load the modules that talk to the driver, and assemble a kernel for an A100.

    Args:
        folder: for the stub and a separate cache; files in it must be loadable.

    Returns:
        Names of what was built.
    """
    os.environ["TRITON_CACHE_DIR"], os.environ["TRITON_LIBCUDA_PATH"] = str(folder / "cache"), str(folder)
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import driver
    from triton.compiler import ASTSource

    place = Path(driver.__file__)
    sources = place.read_text(encoding="utf-8") + place.with_name("driver.c").read_text(encoding="utf-8")
    ctypes.CDLL(str(make_driver(folder, sources)), mode=ctypes.RTLD_GLOBAL)
    driver.CudaUtils()
    built = ["cuda_utils"]
    if hasattr(driver, "make_launcher"):  # later versions have one launcher in the module above
        from triton.runtime.build import compile_module_from_src

        source = driver.make_launcher({}, {0: "*fp32", 1: "i32"}, None)
        options = {"library_dirs": driver.library_dirs(), "include_dirs": driver.include_dirs}
        compile_module_from_src(source, "__triton_launcher", libraries=driver.libraries, **options)
        built.append("__triton_launcher")
    from graphbench_kernels import probe_triton

    signature = {"out": "*i32", "size": "constexpr"}
    made = triton.compile(ASTSource(probe_triton._fill, signature, {"size": 16}), target=GPUTarget("cuda", 80, 32))
    return [*built, f"a kernel of {len(made.asm['cubin'])} bytes"]


def main() -> None:
    """Build everything in the folder of Triton's cache, and print what was built."""
    if find_spec("triton") is None:
        print("No Triton installed: torch's operations are used instead of its kernels.")
        return
    cache = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        print(f"Triton can launch kernels: built {', '.join(build(Path(folder)))}")


if __name__ == "__main__":
    sys.exit(main())
