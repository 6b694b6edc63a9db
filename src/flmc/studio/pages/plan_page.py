"""The page Plan: the constraints on the gain, the predicted sample, and the privacy cost."""

from __future__ import annotations

import asyncio

from nicegui import ui

from flmc.base.errors import InvalidSetting
from flmc.base.tables import format_up
from flmc.planning.plans import Plan
from flmc.planning.plans.rows import USELESS_EPSILON
from flmc.planning.plans.verdict import verdict_of
from flmc.settings.construction import scheme_of
from flmc.settings.questions import suggest_settings
from flmc.settings.regimes import LEVELS, RegimeMap, regime_maps
from flmc.settings.schema import Settings
from flmc.studio.controls import CONTROLS, field_of, format_value, read_given
from flmc.studio.elements.cards import (
    ChartCard,
    Tile,
    save_page,
    show_rows,
    show_verdict,
    with_notice,
)
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.elements.panel import Panel
from flmc.studio.page_addresses import changed, command_line
from flmc.studio.work import computations
from flmc.studio.work.page_tasks import Latest, Turn, in_words
from flmc.views.charts.plan_charts import (
    decibels,
    limits_chart,
    loss_chart,
    regime_chart,
    spending_chart,
)
from flmc.views.charts.run_charts import posterior_chart

_REST = 0.35
"""Seconds without a change of settings before the page computes the map of regimes, which takes
long. The map shows which constraint decides the gain, over SNR and epsilon."""


class PlanPage:
    """The page Plan in one browser tab: what limits the gain, the predicted sample and the privacy
    cost, for the settings of the panel."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        self.work = Latest(self._compute, self._complain)
        ui.context.client.on_delete(self.work.close)
        whole = frame(state, on_theme=self._redraw, on_export=with_notice(self._export))
        with whole, ui.element("div").classes("sheet"):
            self.panel = Panel(state.given, self._changed)
            with ui.element("main").classes("main"):
                self._draw()
        # The plan is computed when the browser connects, not for a client that only fetches the
        # page.
        ui.context.client.on_connect(self._changed)

    def _draw(self) -> None:
        """Draw the page's elements beside the panel of settings, still without numbers and
        charts."""
        self._verdict = ui.element("div").classes("figure")
        self._tiles = {}
        with ui.element("div").classes("tiles"):
            for key, name in {
                "gain": "Gain", "temperature": "Temperature", "variance_ratio": "Variance ratio",
                "mean_shift": "Mean shift", "round_epsilon": "Epsilon, one round",
                "run_epsilon": "Epsilon, whole run", "risk": "Attacker, whole run",
            }.items():  # fmt: skip
                self._tiles[key] = Tile(name, key)
        with ui.element("div").classes("cards"):
            self._limits = ChartCard(self.state, "What limits the gain")
            self._posterior = ChartCard(self.state, "What will be sampled")
            self._spending = ChartCard(self.state, "Privacy over the run")
            self._loss = ChartCard(self.state, "Privacy loss of one round")
            self._regimes = ChartCard(
                self.state, "Regimes: what decides where", tall=True, whole=True,
                on_click=self._go_to,
            )  # fmt: skip
        with ui.element("section").classes("card"):
            with ui.element("div").classes("line"):
                ui.label("What would fit?").classes("text-subtitle2")
                self._asking = ui.button("Suggest", on_click=self._suggest).props("dense outline")
                ui.label("Proposes what is at its default of link, clip and rounds.").classes(
                    "caption"
                )
            self._suggested = ui.element("div").classes("scroll").props("data-suggested")
        with ui.element("section").classes("card"):
            ui.label("The same on the command line").classes("text-subtitle2")
            with ui.element("div").classes("line"):
                self._command = ui.label("").classes("code").props("data-command")
                ui.button(icon="content_copy", on_click=self._copy_command).props(
                    'flat round dense color="grey" aria-label="Copy the command"'
                )
        with ui.element("section").classes("card"):
            ui.label("The whole plan").classes("text-subtitle2")
            self._rows = ui.element("div").classes("figure scroll")

    @property
    def _cards(self) -> list[ChartCard]:
        return [self._limits, self._posterior, self._spending, self._loss, self._regimes]

    def _redraw(self) -> None:
        for card in self._cards:
            card.redraw()

    def _changed(self) -> None:
        """Mark all charts and numbers as out of date after a change of settings, write the settings
        into the URL, and request a new computation."""
        for card in self._cards:
            card.wait()
        for tile in self._tiles.values():
            tile.wait()
        self._verdict.classes(add="stale")
        self.state.changed()
        self.work.ask()

    async def _compute(self, turn: Turn) -> None:
        """Compute and show the parts of the page one after the other, the quickest first, until a
        newer request ends the turn."""
        # The settings are read once: a change in the panel meanwhile ends this computation anyway.
        settings = read_given(self.state.given)
        await self._show_limits(turn, settings)
        self.panel.settled(settings)
        self._command.set_text(command_line(self.state.given))
        await self._show_forecast(turn, settings)
        await self._show_privacy(turn, settings)
        await asyncio.sleep(_REST)
        await self._show_regimes(turn, settings)

    def _complain(self, error: Exception, message: str) -> None:
        """Show the ``message`` of an ``error`` at the top of the page and, if it names a setting,
        at that setting's control."""
        name = field_of(message) if isinstance(error, InvalidSetting) else None
        if name is not None:
            self.panel.complain(name, message)
        for card in self._cards:
            card.halt()
        self._verdict.classes(remove="stale")
        self._verdict.clear()
        with (
            self._verdict,
            ui.element("div").classes("verdict bad").props('role="alert" data-verdict'),
        ):
            ui.label(message)

    async def _show_limits(self, turn: Turn, settings: Settings) -> None:
        """Show the constraints on the gain, the gain and the temperature, from a plan without
        prediction, which takes milliseconds."""
        plan = await turn.compute(computations.quick_plan, settings)
        self._limits.show(await turn.compute(limits_chart, plan))
        gain = plan.typical_gain
        self._tiles["gain"].show(f"{gain:.5g}", gain, f"{decibels(gain):.2f} dB")
        heat = plan.temperature
        late = (plan.rounds_needed or 0) > plan.num_burn_in
        self._tiles["temperature"].show(
            "unknown" if heat is None else f"{heat:.4g}",
            heat,
            plan.unknown_step or "" if heat is None else _heat_in_words(heat, late),
        )

    async def _show_forecast(self, turn: Turn, settings: Settings) -> None:
        """Show the predicted variance ratio and mean shift of the draws, and their predicted law
        beside the posterior."""
        plan: Plan = await turn.compute_slowly(computations.whole_plan, settings)
        law = plan.prediction
        late = any(each.code == "burn-in" for each in plan.findings)
        self._tiles["variance_ratio"].show(
            "not predicted" if law is None else f"{law.variance_ratio:.4g}",
            None if law is None else law.variance_ratio,
            "1 is right" + (", if the burn-in sufficed" if late else ""),
        )
        shift = None if law is None else law.mean_shift
        self._tiles["mean_shift"].show(
            "not predicted" if shift is None else f"{shift:.2g} sd", shift,
            "in posterior standard deviations",
        )  # fmt: skip
        # This call may run in the event loop: it is immediate, because the plan above has put its
        # value into the cache.
        exact = computations.problem_of(settings).model.posterior
        predicted = await turn.compute_slowly(computations.predicted_law, settings)
        if exact is None or predicted is None or plan.dim < 2:
            self._posterior.say("Nothing is predicted here: see the rows of the plan below.")
        else:
            laws = {"predicted": predicted}
            self._posterior.show(await turn.compute(posterior_chart, exact, laws))

    async def _show_privacy(self, turn: Turn, settings: Settings) -> None:
        """Show the verdict, the rows of the plan, and the privacy cost of one round and of the
        whole run."""
        plan: Plan = await turn.compute_slowly(computations.whole_plan, settings)
        # The document is computed only for its side effect: a plan computes its privacy when it is
        # first asked, which takes too long for the event loop below.
        await turn.compute_slowly(computations.document, settings)
        listing = plan.listing()
        self._verdict.clear()
        self._verdict.classes(remove="stale")
        with self._verdict:
            verdict = verdict_of(plan, with_run=True)
            show_verdict(verdict.headline, verdict.lights)
        self._rows.clear()
        with self._rows:
            show_rows(listing.rows)
        for key, cost in (("round_epsilon", plan.round_cost), ("run_epsilon", plan.run_cost)):
            if cost is None:
                self._tiles[key].show("unknown")
                continue
            weak = key == "run_epsilon" and cost.epsilon > USELESS_EPSILON
            more = f"at delta {cost.delta:g}" + ("; guarantees next to nothing" if weak else "")
            self._tiles[key].show(format_up(cost.epsilon), cost.epsilon, more)
        risk = plan.run_risk
        if risk is None:
            self._tiles["risk"].show("unknown")
        else:
            caught = format_up(100.0 * risk.caught(0.01), 3)
            self._tiles["risk"].show(
                f"{format_up(100.0 * risk.accuracy, 3)} % right", risk.accuracy,
                f"at most, 50 % is guessing; at 1 % false alarms {caught} % caught",
            )  # fmt: skip
        curve = await turn.compute_slowly(computations.spending, settings)
        if curve:
            self._spending.show(spending_chart({"": curve}, plan))
        else:
            self._spending.say(plan.unknown_privacy or "The privacy of this run is not known.")
        laws = await turn.compute_slowly(computations.round_losses, settings)
        if laws and plan.round_cost is not None:
            self._loss.show(loss_chart(laws, plan))
        else:
            self._loss.say("The law of the loss is not known for these settings.")

    async def _show_regimes(self, turn: Turn, settings: Settings) -> None:
        """Show the map of regimes (the constraint that decides the gain, over SNR and epsilon) in
        ever finer versions, marked as out of date until the finest."""
        if scheme_of(settings).noise_is_exact or settings.privacy == "off":
            self._regimes.say("Without a channel or a budget there is no map of regimes.")
            return
        maps = regime_maps(settings, stop=lambda: turn.over)
        here = (settings.snr_db, settings.epsilon)
        delta = settings.delta if settings.scope == "round" else settings.run_delta
        for level in LEVELS:
            regimes: RegimeMap | None = await turn.compute_slowly(next, maps, None)
            if regimes is None:
                return
            chart = await turn.compute(regime_chart, regimes, here, settings.scope, delta)
            self._regimes.show(chart)
            self._map = regimes
            if level != LEVELS[-1]:
                self._regimes.wait()

    def _go_to(self, series: str, values: list[float]) -> None:
        """Set SNR and epsilon of the panel to those of a clicked cell of the map of regimes;
        ``values`` begin with its column and row."""
        if not series.endswith("decides"):
            return
        column, row = int(values[0]), int(values[1])
        snr_db = round(self._map.snr_db[column], 1)
        epsilon = float(f"{self._map.epsilon[row]:.3g}")
        self.panel.put({"snr_db": format_value(snr_db), "epsilon": format_value(epsilon)})

    async def _suggest(self) -> None:
        """Show proposed settings with a button that takes them over into the panel, or the reason
        for which none can be proposed."""
        self._asking.props("loading")
        given = changed(self.state.given)
        try:
            suggestion = await asyncio.to_thread(suggest_settings, read_given(given))
            words = {
                name: format_value(value)
                for name, value in suggestion.settings.items()
                if name in CONTROLS
            }
            self._suggested.clear()
            with self._suggested:
                show_rows(suggestion.listing().rows)
                ui.button("Take these", on_click=lambda: self.panel.put(words)).props("dense")
        except Exception as error:
            self._suggested.clear()
            with self._suggested:
                ui.label(in_words(error)).classes("caption")
        finally:
            self._asking.props(remove="loading")

    def _copy_command(self) -> None:
        ui.clipboard.write(self._command.text)
        ui.notify("Command copied", position="bottom")

    async def _export(self) -> None:
        charts = [card.chart for card in self._cards if card.chart is not None]
        settings = read_given(self.state.given)
        listing = (await asyncio.to_thread(computations.whole_plan, settings)).listing()
        await save_page("plan", self._command.text, listing, charts, self.state.theme)


def _heat_in_words(heat: float, late: bool) -> str:
    """Words about a temperature (factor by which the sampled variance exceeds the posterior's);
    ``late`` says that the chain does not reach the posterior within the burn-in."""
    if late:
        return "of a chain that has arrived: this burn-in is too short"
    if abs(heat - 1) < 0.02:
        return "right: as wide as the posterior"
    return "too wide" if heat > 1 else "too narrow"
