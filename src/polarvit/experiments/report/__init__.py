"""A report on finished runs: one HTML file with a table, curves, embeddings and confusion."""

from polarvit.experiments.report.page import write_report

__all__ = ["write_report"]
