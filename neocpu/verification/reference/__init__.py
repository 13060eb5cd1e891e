"""The independent reference that compiled modules are verified against, and bounds of their errors.

It is onnx's own reference evaluator, an executable form of the standard. Fast numpy replaces its
slow operators, and cases that the standard leaves open are defined. Neither TVM nor ONNX Runtime is
involved, so that a shared mistake is unlikely.
"""
