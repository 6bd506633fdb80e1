"""Medical segmentation with four U-Nets: the paper's table, what corruptions do to them, and what they look like.

`table` trains nets x sets x seeds, `robustness` and `pictures` use the weights it leaves in its run folders.
"""
