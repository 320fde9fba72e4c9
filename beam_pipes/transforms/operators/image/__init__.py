"""Operators over images, axes HWC."""
