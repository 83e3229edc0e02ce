//! Deletes the contents of namespaces that are being deleted, then the namespaces. Entry:
//! [`NamespaceController::sync`].

use serde_json::{Value, json};

use super::api::{Api, Client, Problem};
use super::kinds::{Kind, Kinds};
use super::remaining::Remaining;

/// The finalizer that this controller removes.
const FINALIZER: &str = "kubernetes";

/// The namespace controller of kube-controller-manager. What exists in a namespace is what its
/// server's discovery lists.
#[derive(Debug, Clone)]
pub struct NamespaceController<C> {
    api: Api<C>,
}

impl<C: Client> NamespaceController<C> {
    /// A controller that uses one address.
    pub fn new(client: C) -> NamespaceController<C> {
        NamespaceController { api: Api(client) }
    }

    /// Empties and finalizes every namespace that is being deleted, once. Returns the names of those
    /// that were finalized.
    ///
    /// # Errors
    /// The first request that failed, after all namespaces were tried.
    pub async fn sync(&self) -> Result<Vec<String>, Problem> {
        let mut finalized = Vec::new();
        let mut problem = None;
        for namespace in self.api.list("/api/v1/namespaces").await? {
            let text = |path: &str| namespace.pointer(path).and_then(Value::as_str);
            let (Some(name), Some(_)) =
                (text("/metadata/name"), text("/metadata/deletionTimestamp"))
            else {
                continue;
            };
            match self.delete(name).await {
                Ok(true) => finalized.push(name.to_owned()),
                Ok(false) => {}
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        match problem {
            Some(problem) => Err(problem),
            None => Ok(finalized),
        }
    }

    /// Empties one namespace. Returns whether it could be finalized: nothing that this server lists
    /// is left in it.
    async fn delete(&self, name: &str) -> Result<bool, Problem> {
        let path = format!("/api/v1/namespaces/{name}");
        let mut namespace = match self.api.get(&path).await {
            Err(problem) if problem.is_not_found() => return Ok(false),
            found => found?,
        };
        let held = |namespace: &Value| -> Vec<Value> {
            let list = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
            list.cloned().unwrap_or_default()
        };
        let mut finalizers = held(&namespace);
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(false);
        }
        let kinds = Kinds::discover(&self.api).await?;
        let mut remaining = Remaining::default();
        for kind in kinds.deletable().filter(|kind| kind.namespaced) {
            match self.delete_all(kind, name).await {
                Ok(objects) => remaining.add(kind, &objects),
                Err(problem) => remaining.problems.push(problem),
            }
        }
        if !remaining.is_empty() {
            if let Some(conditions) = remaining.conditions(&namespace) {
                let status = json!({"status": {"conditions": conditions}});
                self.api.merge(&format!("{path}/status"), &status).await?;
            }
            return remaining.problems.into_iter().next().map_or(Ok(false), Err);
        }
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        if let Some(namespace) = namespace.as_object_mut() {
            let spec = namespace.entry("spec").or_insert_with(|| json!({}));
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("finalizers".to_owned(), Value::Array(finalizers));
            }
        }
        self.api.put(&format!("{path}/finalize"), &namespace).await?;
        Ok(true)
    }

    /// Deletes all objects of a kind in a namespace. Returns those that are left.
    async fn delete_all(&self, kind: &Kind, namespace: &str) -> Result<Vec<Value>, Problem> {
        let collection = kind.collection(namespace);
        let background = || json!({"propagationPolicy": "Background"});
        // What the server does not know cannot be in the namespace: this is the mistake that a
        // false 404 causes.
        let listed = |list: Result<Vec<Value>, Problem>| match list {
            Err(problem) if problem.is_not_found() => Ok(Vec::new()),
            list => list,
        };
        let objects = listed(self.api.list(&collection).await)?;
        if objects.is_empty() {
            return Ok(objects);
        }
        if kind.has("deletecollection") {
            self.api.delete(&collection, background()).await?;
        } else {
            for object in &objects {
                let name = object.pointer("/metadata/name").and_then(Value::as_str);
                let path = kind.object(namespace, name.unwrap_or_default());
                match self.api.delete(&path, background()).await {
                    Err(problem) if problem.is_not_found() => {}
                    outcome => drop(outcome?),
                }
            }
        }
        listed(self.api.list(&collection).await)
    }
}
