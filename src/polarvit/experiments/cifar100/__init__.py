"""CIFAR-100: the paper's headline, what had to be settled before it, and what the weights tell beyond it.

`table` trains the rows of the paper's main table at Tiny size, `sweep` the learning rates of a fair comparison,
`products` asks whether TF32 costs accuracy, `choices` and `variants` change one setting at a time, a tenth as long and
at full length, `analysis` looks at trained weights.
"""
