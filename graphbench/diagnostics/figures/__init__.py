"""Figures of graphs and of attention, drawn from arrays; nothing here watches or measures."""
