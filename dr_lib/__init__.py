"""Dense retrieval, reproducible: five papers' methods, each one word apart, under equal budgets.

The folders are the steps of the data's way, and imports run in this order only: collections ->
tokens -> masking, losses -> models -> training -> objectives, retrieval -> materials, evaluation ->
lab.
"""

import warnings

# In a kernel without ipywidgets tqdm warns as the first library imports it, and draws bars of text,
# which is what we want.
warnings.filterwarnings("ignore", message="IProgress not found")

__version__ = "0.1.0"
