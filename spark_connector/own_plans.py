"""A plan of its own for each use of a frame, where Spark keeps one for all of them.

Spark plans a Python source once per loaded frame or view and keeps that plan with it, in the JVM, where no source can
reach it: later queries read the offsets of the first one. Up to 4.3 a query that pushes filters replaces that plan for
all others, also for one without filters: they would miss rows.

Here an optimizer rule puts a copy of the frame's source wherever the frame stands, before filters are pushed. The rule
is Java, compiled in the driver's JVM by the compiler that Spark itself generates code with: no jar is needed. The copy
tells the source in Python that it may take filters, by one more attribute at the end of its pickle:

    … STOP    becomes    … EMPTY_DICT, "takes_filters", NEWTRUE, SETITEM, BUILD, STOP

Through Spark Connect the driver's JVM is out of reach. There each query loads its frames anew, but for a cache of
analyzed plans, which a session may turn off; temporary views keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "kbroker.OwnPlans"
CONNECT_PLAN_CACHE = "spark.connect.session.planCache.enabled"
RULE = r"""
package kbroker;

import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

public class OwnPlans extends Rule {
    public static class OwnSource extends PythonDataSourceV2 {
        private final PythonDataSourceV2 shared;

        public OwnSource(PythonDataSourceV2 shared, String name) {
            this.shared = shared;
            setShortName(name);
        }

        public PythonDataSourceCreationResult getOrCreateDataSourceInPython(
                String name, CaseInsensitiveStringMap options, Option schema) {
            PythonDataSourceCreationResult made = shared.getOrCreateDataSourceInPython(name, options, schema);
            if (!name.equalsIgnoreCase("kbroker") || !SQLConf.get().pythonFilterPushDown()) return made;
            byte[] mark = "}\u008c\rtakes_filters\u0088sb.".getBytes(StandardCharsets.ISO_8859_1);
            int end = made.dataSource().length - 1;
            byte[] marked = Arrays.copyOf(made.dataSource(), end + mark.length);
            System.arraycopy(mark, 0, marked, end, mark.length);
            return new PythonDataSourceCreationResult(marked, made.schema());
        }
    }

    public static class Builder extends AbstractFunction1 {
        public Object apply(Object session) { return new OwnPlans(); }
    }

    public static class Copies extends AbstractPartialFunction {
        public boolean isDefinedAt(Object node) {
            if (!(node instanceof DataSourceV2Relation)) return false;
            Object table = ((DataSourceV2Relation) node).table();
            return table instanceof PythonTable && !(field(table, "ds") instanceof OwnSource);
        }

        public Object applyOrElse(Object node, Function1 otherwise) {
            if (!isDefinedAt(node)) return otherwise.apply(node);
            DataSourceV2Relation relation = (DataSourceV2Relation) node;
            Object[] parts = new Object[relation.productArity()];
            for (int at = 0; at < parts.length; at++) {
                Object part = relation.productElement(at);
                parts[at] = part == relation.table() ? copy(part) : part;
            }
            return ((TreeNode) relation).makeCopy(parts);
        }
    }

    public TreeNode apply(TreeNode plan) { return ((LogicalPlan) plan).transformUp(new Copies()); }

    static Object copy(Object table) {
        String name = (String) field(table, "shortName");
        OwnSource own = new OwnSource((PythonDataSourceV2) field(table, "ds"), name);
        return new PythonTable(own, name, (StructType) field(table, "outputSchema"));
    }

    static Object field(Object of, String name) {
        try {
            Field field = PythonTable.class.getDeclaredField(name);
            field.setAccessible(true);
            return field.get(of);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }
}
"""


def plan_each_use(spark: SparkSession) -> bool:
    """Make the session plan each use of a Python source by itself; return whether that holds in views and queries, too.

    False: through Spark Connect, where it holds for frames. Raises RuntimeError where the rule is not accepted.
    """
    if getattr(spark, "_jsparkSession", None) is None:
        spark.conf.set(CONNECT_PLAN_CACHE, "false")
        return False
    session: Any = spark._jsparkSession
    gateway: Any = spark.sparkContext._gateway
    try:
        if NAME not in session.extensions().buildOptimizerRules(session).mkString():
            session.extensions().injectOptimizerRule(_rule_builder(gateway))
    except Exception as error:
        raise RuntimeError(
            f"Spark {spark.version} does not accept the rule by which it would plan each use of a frame by itself, so"
            f" queries cannot ask anew what there is, and filters cannot be pushed (rows would be missing): {error}"
        ) from error
    return True


def _rule_builder(gateway: Any) -> Any:
    """Return a scala.Function1 that makes the rule; the compiled class stays for the JVM's life."""
    jvm = gateway.jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(RULE)
    builder = compiler.getClassLoader().loadClass(f"{NAME}$Builder")
    no_types, nothing = gateway.new_array(jvm.java.lang.Class, 0), gateway.new_array(jvm.java.lang.Object, 0)
    return builder.getDeclaredConstructor(no_types).newInstance(nothing)
