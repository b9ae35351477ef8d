#!/bin/sh
# A local Airflow until Ctrl-C, started at the root of the checkout. Not `airflow standalone`: that serves the logs of tasks
# to every network, and begins with tasks before there is a server that they can tell how they went.
set -eu
set -a
. conf/airflow.env
OFFSETLAKE_LAKE=$AIRFLOW_HOME/lake
OFFSETLAKE_LOG=$1
set +a

airflow db migrate >/dev/null
airflow pools set offsetlake_writer 1 "writes to the lake" >/dev/null

started=
trap 'wait; exit 130' INT # Ctrl-C reaches all of it; a scheduler that is told twice leaves its workers behind
trap 'kill $started; wait; exit 143' TERM
start() {
    airflow "$@" >"$AIRFLOW_HOME/$1.log" 2>&1 &
    started="$started $!"
}

start api-server
until python -c "import urllib.request; urllib.request.urlopen('$AIRFLOW__API__BASE_URL/api/v2/version')" 2>/dev/null; do
    kill -0 $! 2>/dev/null || { tail "$AIRFLOW_HOME/api-server.log"; exit 1; }
    sleep 1
done
start dag-processor
start scheduler --skip-serve-logs
echo "Airflow is at $AIRFLOW__API__BASE_URL and needs no login; its logs are in $AIRFLOW_HOME; Ctrl-C ends it"
wait
