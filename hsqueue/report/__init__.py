"""``hsqueue report``: a run as one page that stands alone. Figures from the manifests, then pictures, then the page."""
