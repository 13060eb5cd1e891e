"""The axes of tensors that carry rows, and the operators that compute rows independently.

A row is one image of a batch, one sequence, or one of the boxes that a run selects. An operator
computes rows independently along an axis if each index of its results depends only on the same
index of its inputs. `table` has the axes of every operator, once, for three users:

- `neocpu.frontend.batching` turns a model for one image into a model for several.
- `neocpu.ir.row_analysis` proves that requests of several clients may share a batch.
- `neocpu.frontend.rows` bounds numbers of rows that only a run decides.

To add an operator, write its ONNX name and its Relax name into the line of `table` that has the
rule for it. If no line fits, write a rule into `rules`: a function that takes an `OperatorCall` and
returns the `Independence` of its axes. A rule reads parameters by ONNX's names; `OnnxCall` and
`RelaxCall` find them in attributes and in constant inputs.
"""
