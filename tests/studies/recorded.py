"""Which recorded free-text replies of real judges are read: python tests/studies/recorded.py [SET ...]

Nothing is asked and nothing simulated. The data lies in ../shared/data; sets are those of recorded_sets.py. Same: of
those that the source read too, the share in which it read the same score.
"""

from __future__ import annotations

import sys

from recorded_sets import SETS  # isort: split

import pandas as pd

rows = []
for name in sys.argv[1:] or SETS:
    for judge, part in SETS[name]().frame.groupby("judge"):
        read, known = part["ours"].notna(), part["recorded"].notna()
        same = (part["ours"] == part["recorded"])[read & known].mean()
        hows = ", ".join(f"{how} {share:.2%}" for how, share in part["how"].value_counts(normalize=True).items())
        rows.append({"set": name, "judge": judge, "n": len(part), "read": read.mean(), "same": same, "how": hows})
with pd.option_context("display.width", 250, "display.max_colwidth", None):
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3f", na_rep="–"))
