"""Compiles the CPU kernels where a C compiler is found. Without one Lockstep installs too and uses torch's operators."""

from setuptools import Extension, setup

kernels = Extension(
    "lockstep.models._kernels",
    ["src/lockstep/models/kernels.c"],
    # Not linked with OpenMP: the kernels use the threads of the library that torch brings.
    extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-Wno-psabi"],
    libraries=["m"],
    optional=True,
)
setup(ext_modules=[kernels])
