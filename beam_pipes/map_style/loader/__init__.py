"""The loader over map-style datasets. (`beam_pipes.DataLoader` is another one: over streams, caches and devices.)"""

from beam_pipes.map_style.loader.data_loader import DataLoader as DataLoader
