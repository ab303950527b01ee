"""A Ray Serve application whose answers name the version that gave them."""

import os

from ray import serve


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Chat:
    async def __call__(self, request):
        return os.environ["VERSION"]


app = Chat.bind()
