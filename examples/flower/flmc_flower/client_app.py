"""The ClientApp: a device that answers every broadcast of theta with packed random bits."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from flmc.privacy.safe_noise.entropy import SystemEntropy
from flmc_flower.task import Settings, answer

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer a broadcast; nothing but the bits leaves the device.

    Parameters
    ----------
    message
        Holds theta.
    context
        Has the number of the partition and the run configuration.
    """
    (theta,) = message.content["arrays"].to_numpy_ndarrays()
    settings = Settings.from_run_config(context.run_config)
    partition = int(context.node_config["partition-id"])
    bits = answer(theta, partition, settings, SystemEntropy())
    return Message(RecordDict({"bits": ArrayRecord([bits])}), reply_to=message)
