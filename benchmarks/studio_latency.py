"""How long the studio takes to repaint after a slider was moved, in a real browser.

A move is timed in the browser, from the key that moves the slider to the frame in which gain and
limits are no longer stale. Clock time, because people wait: use a quiet machine."""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from studio.conftest import FLAGS, Tab, new_tab, start_studio

WAIT = """
name => new Promise(resolve => {
  const tile = document.querySelector('[data-tile="gain"]');
  const before = tile.getAttribute('data-value'), began = performance.now();
  const look = () => {
    const stale = document.querySelector('.card.stale .chart') &&
      document.querySelectorAll('.card')[0].classList.contains('stale');
    if (tile.getAttribute('data-value') !== before && !tile.classList.contains('stale') && !stale)
      requestAnimationFrame(() => resolve(performance.now() - began));
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})
"""


def move(tab: Tab, key: str) -> float:
    """Milliseconds from a key on the slider of the SNR to the new picture."""
    thumb = tab.page.locator('[data-control="snr_db"] .q-slider [tabindex="0"]').first
    thumb.focus()
    waiting = tab.page.evaluate_handle(f"({{done: ({WAIT})('gain')}})")
    thumb.press(key)
    return float(waiting.evaluate("each => each.done"))


def main() -> None:
    """Print the median of some moves, for the standard problem and for a larger one."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moves", type=int, default=50)
    moves = parser.parse_args().moves
    studio = start_studio()
    try:
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
            for name, path in (
                ("20 devices, 5 entries", "/?snr_db=-10"),
                ("50 devices, 30 entries, clip 10", "/?snr_db=-10&devices=50&dim=30&clip=10"),
            ):
                tab = new_tab(chromium, studio)
                tab.open(path)
                tab.settle()
                took = []
                for _ in range(moves):
                    # Where power decides, so that every move changes the gain, and always on, so
                    # that no answer was kept from an earlier move.
                    took.append(move(tab, "ArrowRight"))
                    tab.page.wait_for_timeout(120)
                low, high = sorted(took)[len(took) // 20], sorted(took)[-1 - len(took) // 20]
                print(
                    f"{name}: median {statistics.median(took):.0f} ms of {moves} moves, 90 % from"
                    f" {low:.0f} to {high:.0f} ms"
                )
                tab.page.close()
            chromium.close()
    finally:
        studio.stop()


if __name__ == "__main__":
    main()
