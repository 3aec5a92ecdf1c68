"""The page people look at: `build_report` makes one self-contained HTML file, figures and tables from run folders."""

from limen.report.build import build_report, read_report, write_report

__all__ = ["build_report", "read_report", "write_report"]
