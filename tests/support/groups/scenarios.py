"""All scenarios and random walks of groups by name, and their topics."""

from support.groups import classic_scenarios, classic_walks, consumer_scenarios, consumer_walks, share_scenarios
from support.groups.comparison import Scenario
from support.serve.members import Members

WALKS = 30
TOPICS = {classic_scenarios.TOPIC: 3} | consumer_scenarios.TOPICS

SCENARIOS = {
    **{f"classic: {name}": Scenario(Members, send) for name, send in classic_scenarios.SCENARIOS.items()},
    **{
        f"consumer: {name}": Scenario(consumer_scenarios.Group, send)
        for name, send in consumer_scenarios.SCENARIOS.items()
    },
    "classic: random walk": classic_walks.walk(0),
}
"""Those for which all versions of Kafka have the same answers and records."""

SCENARIOS_4_2 = {
    **SCENARIOS,
    **{
        f"consumer: {name}": Scenario(consumer_scenarios.Group, send)
        for name, send in consumer_scenarios.SINCE_4_2.items()
    },
    **{f"share: {name}": Scenario(share_scenarios.Group, send) for name, send in share_scenarios.SCENARIOS.items()},
    **{f"classic: random walk {seed}": classic_walks.walk(seed) for seed in range(1, WALKS)},
    **{f"consumer: random walk {seed}": consumer_walks.walk(seed) for seed in range(WALKS)},
}
"""Those for which the server has the answers and records of Kafka 4.2."""
