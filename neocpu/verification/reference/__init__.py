"""The independent reference that compiled modules are verified against, and what they may err.

It is onnx's own reference evaluator, an executable form of the standard, with its slow operators in
fast numpy and what the standard leaves open defined. Neither TVM nor ONNX Runtime is involved, so
that a shared mistake is unlikely.
"""
