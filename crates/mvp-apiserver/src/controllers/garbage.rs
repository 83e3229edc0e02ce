//! Deletes objects whose owners are gone. Entry: [`GarbageCollector::sweep`].

use serde_json::{Value, json};

use super::api::{Api, Client, Problem};
use super::graph::{Graph, Node, Owner};
use super::kinds::Kinds;

/// The finalizer of an owner whose dependents go first.
const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents stay.
const ORPHAN: &str = "orphan";

/// The garbage collector of kube-controller-manager, which lists instead of watching.
///
/// It knows the kinds of its last [`refresh`](Self::refresh). An owner of an unknown kind keeps its
/// dependents. An owner of a known kind that its server answers with 404 is gone: this is the harm
/// that a false 404 does, when the address leads to another server than at the last refresh.
#[derive(Debug, Clone)]
pub struct GarbageCollector<C> {
    api: Api<C>,
    kinds: Kinds,
}

/// What one sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// The paths of the objects that were deleted.
    pub deleted: Vec<String>,
    /// What failed; the next sweep tries it again.
    pub problems: Vec<Problem>,
}

/// What became of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It exists.
    Solid,
    /// It waits until its dependents are deleted.
    Waiting,
    /// It does not exist, or another object has its name.
    Absent,
}

impl<C: Client> GarbageCollector<C> {
    /// A collector that uses one address. It knows no kinds yet.
    pub fn new(client: C) -> GarbageCollector<C> {
        GarbageCollector { api: Api(client), kinds: Kinds::default() }
    }

    /// Asks the server which kinds there are.
    ///
    /// # Errors
    /// Discovery failed; the known kinds stay.
    pub async fn refresh(&mut self) -> Result<(), Problem> {
        self.kinds = Kinds::discover(&self.api).await?;
        Ok(())
    }

    /// Lists all objects of the known kinds, and deletes those whose owners are gone.
    pub async fn sweep(&self) -> Collected {
        let mut collected = Collected::default();
        let mut graph = Graph::default();
        for kind in self.kinds.deletable() {
            match self.api.list(&kind.collection("")).await {
                Ok(objects) => objects.iter().for_each(|object| graph.add(kind, object)),
                Err(problem) => collected.problems.push(problem),
            }
        }
        // Dependents may be missing in the graph: their owners have to wait for the next sweep.
        let is_complete = collected.problems.is_empty();
        for node in graph.nodes() {
            let outcome = if node.being_deleted {
                if !is_complete {
                    continue;
                }
                self.finish(&graph, node, &mut collected).await
            } else {
                self.judge(&graph, node, &mut collected).await
            };
            match outcome {
                // Somebody else was faster.
                Err(problem) if problem.is_not_found() => {}
                Err(problem) => collected.problems.push(problem),
                Ok(()) => {}
            }
        }
        collected
    }

    /// Serves the finalizers of an owner that is being deleted.
    async fn finish(
        &self,
        graph: &Graph<'_>,
        node: &Node<'_>,
        collected: &mut Collected,
    ) -> Result<(), Problem> {
        if node.has_finalizer(ORPHAN) {
            for dependent in graph.dependents(&node.uid) {
                self.keep_owners(dependent, |owner| owner.uid != node.uid).await?;
            }
            return self.remove_finalizer(node, ORPHAN).await;
        }
        if node.has_finalizer(FOREGROUND) {
            let mut blocked = false;
            for dependent in graph.dependents(&node.uid) {
                blocked |=
                    dependent.owners.iter().any(|owner| owner.uid == node.uid && owner.blocks);
                if !dependent.being_deleted {
                    self.judge(graph, dependent, collected).await?;
                }
            }
            if !blocked {
                return self.remove_finalizer(node, FOREGROUND).await;
            }
        }
        Ok(())
    }

    /// Deletes an object if no owner keeps it, and removes references to owners that are gone.
    async fn judge(
        &self,
        graph: &Graph<'_>,
        node: &Node<'_>,
        collected: &mut Collected,
    ) -> Result<(), Problem> {
        if node.owners.is_empty() {
            return Ok(());
        }
        let mut standings = Vec::new();
        for owner in &node.owners {
            standings.push(self.standing(node, owner).await?);
        }
        let is = |standing| standings.contains(&standing);
        if is(Standing::Solid) {
            if is(Standing::Absent) || is(Standing::Waiting) {
                let mut standings = standings.iter();
                return self
                    .keep_owners(node, |_| standings.next() == Some(&Standing::Solid))
                    .await;
            }
            return Ok(());
        }
        let has_dependents = graph.dependents(&node.uid).next().is_some();
        let policy = if node.has_finalizer(ORPHAN) {
            "Orphan"
        } else if node.has_finalizer(FOREGROUND) || (is(Standing::Waiting) && has_dependents) {
            "Foreground"
        } else {
            "Background"
        };
        let options = json!({
            "propagationPolicy": policy,
            "preconditions": {"uid": node.uid, "resourceVersion": node.resource_version},
        });
        self.api.delete(&node.path(), options).await?;
        collected.deleted.push(node.path());
        Ok(())
    }

    /// Asks the server whether an owner exists.
    async fn standing(&self, node: &Node<'_>, owner: &Owner) -> Result<Standing, Problem> {
        let Some(kind) = self.kinds.find(&owner.api_version, &owner.kind) else {
            let Owner { api_version, kind, .. } = owner;
            return Err(Problem::new(format!("the kind {kind} of {api_version} is unknown")));
        };
        if kind.namespaced && node.namespace.is_empty() {
            return Err(Problem::new(format!("{}: its owner has a namespace", node.path())));
        }
        let found = match self.api.metadata(&kind.object(&node.namespace, &owner.name)).await {
            Err(problem) if problem.is_not_found() => return Ok(Standing::Absent),
            found => found?,
        };
        let text = |path: &str| found.pointer(path).and_then(Value::as_str);
        match text("/metadata/uid") {
            Some(uid) if uid == owner.uid => {}
            Some(_) => return Ok(Standing::Absent),
            None => {
                return Err(Problem::new(format!("the owner of {} has no UID", node.path())));
            }
        }
        let finalizers = found.pointer("/metadata/finalizers").and_then(Value::as_array);
        let in_foreground = finalizers.into_iter().flatten().any(|held| held == FOREGROUND);
        Ok(match text("/metadata/deletionTimestamp") {
            Some(_) if in_foreground => Standing::Waiting,
            _ => Standing::Solid,
        })
    }

    /// Removes owner references.
    async fn keep_owners(
        &self,
        node: &Node<'_>,
        mut keeps: impl FnMut(&Owner) -> bool,
    ) -> Result<(), Problem> {
        let kept: Vec<_> =
            node.owners.iter().filter(|owner| keeps(owner)).map(|owner| &owner.value).collect();
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        let patch = json!({"metadata": {
            "uid": node.uid,
            "resourceVersion": node.resource_version,
            "ownerReferences": kept,
        }});
        self.api.merge(&node.path(), &patch).await.map(drop)
    }

    async fn remove_finalizer(&self, node: &Node<'_>, finalizer: &str) -> Result<(), Problem> {
        let kept: Vec<_> = node.finalizers.iter().filter(|held| *held != finalizer).collect();
        let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
        let patch = json!({"metadata": {
            "resourceVersion": node.resource_version,
            "finalizers": kept,
        }});
        self.api.merge(&node.path(), &patch).await.map(drop)
    }
}
