"""Augmentation on the device: batched, keyed by (seed, step, sample), equal to Pillow."""
