"""The category of each test in ONNX's suite."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
from onnx.backend.test.loader import load_model_tests

_OPERATORS = {
    "convolution": "CausalConvWithState Conv ConvTranspose DeformConv Col2Im",
    "pooling": "AveragePool GlobalAveragePool GlobalMaxPool GlobalLpPool LpPool MaxPool MaxRoiPool "
    "MaxUnpool RoiAlign",
    "recurrent": "GRU LSTM RNN",
    "attention": "Attention FlexAttention LinearAttention RotaryEmbedding",
    "normalisation": "BatchNormalization GroupNormalization InstanceNormalization LRN "
    "LayerNormalization LpNormalization MeanVarianceNormalization RMSNormalization",
    "resize": "AffineGrid GridSample Resize Upsample",
    "quantised": "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv "
    "QLinearMatMul QuantizeLinear",
    "control flow": "If Loop Scan",
    "sequence": "OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty "
    "SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence ConcatFromSequence",
    "string, text, ml": "ImageDecoder RegexFullMatch StringConcat StringNormalizer StringSplit "
    "TfIdfVectorizer",
    "training": "Adagrad Adam Gradient Momentum NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "activation": "Celu Clip Dropout Elu Gelu HardSigmoid HardSwish Hardmax LeakyRelu LogSoftmax "
    "Mish PRelu Relu Selu Shrink Sigmoid Softmax Softplus Softsign SwiGLU Swish Tanh "
    "ThresholdedRelu",
    "reduction": "ArgMax ArgMin CumProd CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp "
    "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare",
    "elementwise": "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitCast BitShift BitwiseAnd "
    "BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Cos Cosh Div Equal Erf Exp Floor Greater "
    "GreaterOrEqual Identity IsInf IsNaN Less LessOrEqual Log Max Mean Min Mod Mul Neg Not Or Pow "
    "Reciprocal Round Sign Sin Sinh Sqrt Sub Sum Tan Where Xor",
    "shape": "CenterCropPad Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Flatten "
    "Gather GatherElements GatherND OneHot Pad Range Reshape ReverseSequence Scatter "
    "ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Squeeze TensorScatter Tile "
    "Transpose Trilu Unsqueeze",
}
_REST = "rest"
CATEGORIES = (*_OPERATORS, _REST)
_OF = {name: category for category, names in _OPERATORS.items() for name in names.split()}


def categories() -> dict[str, str]:
    """Return the category of each test: the first in `CATEGORIES` that it has a node of.

    The expansion of a function has the function's category.
    """
    models = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero
        for kind in ("node", "simple", "pytorch-converted", "pytorch-operator", "real"):
            for case in load_model_tests(kind=kind):
                models[case.name] = case
    own = {name: _category(case) for name, case in models.items()}
    return {name: own.get(name.split("_expanded")[0], of) for name, of in own.items()}


def _category(case: onnx.backend.test.case.test_case.TestCase) -> str:
    if case.kind == "real":
        return "convolution"
    model = case.model or onnx.load(Path(case.model_dir, "model.onnx"))
    if any(node.domain == "ai.onnx.ml" for node in model.graph.node):
        return "string, text, ml"
    found = {_OF.get(node.op_type, _REST) for node in model.graph.node}
    return min(found, key=CATEGORIES.index)
