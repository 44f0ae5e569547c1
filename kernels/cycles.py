"""The processor's own clock, to be read inside compiled kernels."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from kernels.cpu import intrinsic


@intrinsic
def cycles(typingctx):
    """Return a count that grows at a steady rate; a reading takes about 10 ns."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.readcyclecounter"), [])

    return types.int64(), codegen
