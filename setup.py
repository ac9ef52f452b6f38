"""Compiles the CPU kernels where a C compiler is found. Without one Lockstep installs too and uses torch's operators."""

from setuptools import Extension, setup

# Each CPU loads the library for its vector instructions. On other CPUs than x86 only the first one compiles.
ARCHITECTURES = {"": [], "_v3": ["-march=x86-64-v3"], "_v4": ["-march=x86-64-v4", "-mprefer-vector-width=512"]}

setup(
    ext_modules=[
        Extension(
            f"lockstep.models._kernels{name}",
            ["src/lockstep/models/kernels.c", "src/lockstep/models/decode_kernels.c"],
            depends=["src/lockstep/models/vectors.h"],
            # Not linked with OpenMP: the kernels use the threads of the library that torch brings.
            extra_compile_args=["-O3", "-fopenmp", "-fno-math-errno", "-Wno-psabi", *options],
            libraries=["m"],
            optional=True,
        )
        for name, options in ARCHITECTURES.items()
    ]
)
